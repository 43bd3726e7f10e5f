// window.cpp -- pad and slice (the same launch with other places), upsample and its gradient (with other taps).
#include <bit>

#include "backend/opencl/kernels/call.h"
#include "ops/resample.h"

namespace situ::opencl::kernels {
namespace {

Call bind_window(const LaunchSpec& launch, const Target& target) {
  const TensorArg &x = launch.in[0], &y = launch.out[0];
  const ir::Ints& before = launch.node.attrs.ints("before");
  const int outer = y.shape().rank() - 1;
  TableArg table;
  for (int i = 0; i < outer; ++i) table.words.push_back(int_of(y.shape()[i]));
  for (int i = 0; i < outer; ++i) table.words.push_back(int_of(x.shape()[i]));
  for (int i = 0; i < outer; ++i) table.words.push_back(int_of(before[static_cast<size_t>(i)]));
  const int64_t vw = tuned(target, "vector.VW"), chunk = round_up(tuned(target, "vector.CHUNK"), vw);
  Call call = make_call("window.cl", "window");
  call.define("VW", vw);
  add_tensors(call, {x, y});
  call.arg(table);
  add_ints(call, {outer, y.rows(), x.cols(), y.cols(), before.back(), chunk});
  const int64_t items = ceil_div(y.cols(), chunk), group = std::min<int64_t>(tuned(target, "vector.WX"), 16);
  return items == 1 ? set_grid(call, 1, y.rows(), 1, 1, group) : set_grid(call, items, y.rows(), 1, group);
}

Call bind_resample(const LaunchSpec& launch, const Target& target) {
  const TensorArg &x = launch.in[0], &y = launch.out[0];
  std::vector<ops::WeightedTaps> taps = ops::resample_taps(launch.node.attrs, x.shape(), y.shape(), 1);
  for (ops::WeightedTaps& t : ops::resample_taps(launch.node.attrs, x.shape(), y.shape(), 2))
    taps.push_back(std::move(t));
  size_t most = 0;
  for (const ops::WeightedTaps& t : taps) most = std::max(most, t.weights.size());
  TableArg table;
  for (const ops::WeightedTaps& t : taps) {
    table.words.insert(table.words.end(), {int_of(t.first), int_of(static_cast<int64_t>(t.weights.size()))});
    for (double weight : t.weights) table.words.push_back(std::bit_cast<int32_t>(static_cast<float>(weight)));
    table.words.resize(table.words.size() + most - t.weights.size());
  }
  const int64_t vw = vector_width(target, y.cols()), vectors = ceil_div(y.cols(), vw);
  const Units units = units_for(target, vw, vectors);
  Call call = make_call("window.cl", "resample");
  call.define("VW", vw);
  add_tensors(call, {x, y});
  call.arg(table);
  add_ints(call, {x.shape()[1], x.shape()[2], x.cols(), y.shape()[1], y.shape()[2], static_cast<int64_t>(most + 2),
                  y.rows() * vectors, units.chunk, units.whole});
  return set_grid(call, ceil_div(y.rows() * vectors, units.chunk), 1, 1, tuned(target, "vector.WX"));
}

void expand_pad(Expansion& e) {
  e.result(0, e.launch("window", e.inputs(), e.out_type(0), {{"before", e.attrs().ints("before")}}));
}
void expand_slice(Expansion& e) {
  ir::Ints before = e.attrs().ints("begin");
  for (int64_t& v : before) v = -v;
  e.result(0, e.launch("window", e.inputs(), e.out_type(0), {{"before", before}}));
}

}  // namespace

KernelList window() {
  static constexpr Kernel kernels[] = {
      {"window", bind_window}, {"upsample", bind_resample, "X -> Y"}, {"upsample_grad", bind_resample, "X -> Y"}};
  static constexpr device::Candidate candidates[] = {{"pad", "window", nullptr, nullptr, expand_pad},
                                                     {"slice", "window", nullptr, nullptr, expand_slice}};
  return {kernels, candidates};
}

}  // namespace situ::opencl::kernels
