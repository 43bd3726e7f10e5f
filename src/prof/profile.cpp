#include "prof/profile.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace situ::prof {
namespace {

constexpr size_t kCostliest = 5;

LaunchRow row_of(const Measured& m, size_t i, const device::Roofline& roofline) {
  const step::Ledger::Launch& launch = m.ledger.list[i];
  LaunchRow row{static_cast<int>(i), m.launch_seconds[i], roofline.seconds(launch.flops, launch.bytes)};
  row.bound = row.roof < roofline.launch_seconds                   ? Bound::launch
              : roofline.compute_bound(launch.flops, launch.bytes) ? Bound::arithmetic
                                                                   : Bound::memory;
  return row;
}

std::vector<LayerRow> layers_of(const Measured& m, const std::vector<LaunchRow>& launches) {
  std::vector<LayerRow> layers;
  std::map<std::string, size_t> index;
  for (const LaunchRow& row : launches) {
    const step::Ledger::Launch& launch = m.ledger.list[static_cast<size_t>(row.index)];
    const auto [it, fresh] = index.try_emplace(launch.origin.layer, layers.size());
    if (fresh) layers.push_back({launch.origin.layer});
    LayerRow& layer = layers[it->second];
    ++layer.launches;
    (launch.origin.backward ? layer.backward : layer.forward) += row.seconds;
    layer.flops += launch.flops;
    layer.bytes += launch.bytes;
    layer.roof += row.roof;
  }
  return layers;
}

}  // namespace

std::string_view name_of(Bound bound) {
  switch (bound) {
    case Bound::arithmetic:
      return "arithmetic";
    case Bound::memory:
      return "memory";
    case Bound::launch:
      break;
  }
  return "launch";
}

Profile profile(step::Session& session, int program, const MeasureOptions& options, const device::Roofline& roofline) {
  Profile p;
  p.measured = measure(session, program, options);
  p.roofline = roofline;
  for (size_t i = 0; i < p.measured.ledger.list.size(); ++i) p.launches.push_back(row_of(p.measured, i, roofline));
  p.layers = layers_of(p.measured, p.launches);
  p.costliest.resize(p.launches.size());
  std::iota(p.costliest.begin(), p.costliest.end(), 0);
  std::stable_sort(p.costliest.begin(), p.costliest.end(), [&](int a, int b) {
    return p.launches[static_cast<size_t>(a)].seconds > p.launches[static_cast<size_t>(b)].seconds;
  });
  p.costliest.resize(std::min(kCostliest, p.costliest.size()));
  p.memory = memory_map(session.compiled(), program, session.device().target());
  p.halves = session.device().activations == DType::f16;
  p.tuned = !session.device().choices.empty();
  return p;
}

}  // namespace situ::prof
