// device.cpp -- launches are calls of OpDef::reference on dense copies of their operands, so that pitched views need no
// care in the references.
#include "backend/ref/device.h"

#include <cstring>

#include "base/clock.h"
#include "base/philox.h"
#include "ops/magnitude.h"

namespace situ::ref {
namespace {

using device::LaunchSpec;
using device::TensorArg;

struct Slabs : device::Storage {
  std::vector<std::vector<double>> data;
  std::vector<std::vector<double>> feeds;  // slab 0 once more, for feeds 1 and up
  std::vector<double>& slab(int index, int feed) {
    return index == 0 && feed > 0 ? feeds[static_cast<size_t>(feed - 1)] : data[static_cast<size_t>(index)];
  }
  double* at(const TensorArg& t, int feed) { return slab(t.slab, feed).data() + t.offset / 8; }
};

void gather(const double* from, const TensorArg& t, double* to) {
  for (int64_t r = 0; r < t.rows(); ++r)
    std::memcpy(to + r * t.cols(), from + r * t.pitch, static_cast<size_t>(t.cols()) * 8);
}
void scatter(const double* from, const TensorArg& t, double* to) {
  for (int64_t r = 0; r < t.rows(); ++r)
    std::memcpy(to + r * t.pitch, from + r * t.cols(), static_cast<size_t>(t.cols()) * 8);
}

class Launches : public device::Executable {
 public:
  Launches(std::span<const LaunchSpec> list, Slabs& slabs, device::Counters& counters, device::Timeline& timeline,
           const bool& profiling, uint64_t noise)
      : list_(list.begin(), list.end()),
        slabs_(slabs),
        counters_(counters),
        timeline_(timeline),
        profiling_(profiling),
        noise_(noise) {
    for (const LaunchSpec& launch : list_) {
      std::vector<std::vector<double>> buffers;
      for (const TensorArg& t : launch.in) buffers.emplace_back(static_cast<size_t>(t.count()));
      for (const TensorArg& t : launch.out) buffers.emplace_back(static_cast<size_t>(t.count()));
      buffers_.push_back(std::move(buffers));
    }
  }
  void enqueue(int feed) override {
    for (int i = 0; i < launches(); ++i) run(i, feed);
  }
  void enqueue(int first, int count) override {
    for (int i = first; i < first + count; ++i) run(i, 0);
  }
  int launches() const override { return static_cast<int>(list_.size()); }

 private:
  void disturb(const ops::OpDef& op, const LaunchSpec& launch, std::span<const ops::RefTensor> all, int index) const {
    const size_t inputs = launch.in.size();
    std::vector<std::vector<double>> sizes;
    std::vector<ops::RefTensor> out;
    for (const ops::RefTensor& t : all.subspan(inputs)) sizes.emplace_back(static_cast<size_t>(t.count()));
    for (size_t o = 0; o < sizes.size(); ++o) out.push_back({all[inputs + o].type, sizes[o].data()});
    ops::run_magnitude(op, {launch.node.attrs, all.subspan(0, inputs), out});
    for (size_t o = 0; o < out.size(); ++o) {
      if (out[o].type.dtype != DType::f32) continue;
      const auto stream = static_cast<uint32_t>(index * 8) + static_cast<uint32_t>(o);
      for (int64_t i = 0; i < out[o].count(); ++i) {
        const double drawn =
            2 * unit_float(random_word(static_cast<uint64_t>(i), stream, static_cast<uint32_t>(noise_), 0)) - 1;
        all[inputs + o][i] += 0x1p-24 * drawn * sizes[o][static_cast<size_t>(i)];
      }
    }
  }

  void run(int index, int feed) {
    const double start = now();
    const LaunchSpec& launch = list_[static_cast<size_t>(index)];
    std::vector<ops::RefTensor> tensors;
    auto& buffers = buffers_[static_cast<size_t>(index)];
    for (const TensorArg& t : launch.in) {
      double* buffer = buffers[tensors.size()].data();
      gather(slabs_.at(t, feed), t, buffer);
      tensors.push_back({t.type, buffer});
    }
    for (const TensorArg& t : launch.out) tensors.push_back({t.type, buffers[tensors.size()].data()});
    const std::span<const ops::RefTensor> all(tensors);
    const size_t inputs = launch.in.size();
    const ops::OpDef& op = ops::get(launch.node.op);
    op.reference({launch.node.attrs, all.subspan(0, inputs), all.subspan(inputs)});
    if (noise_) disturb(op, launch, all, index);
    for (size_t i = 0; i < launch.out.size(); ++i)
      scatter(all[inputs + i].data, launch.out[i], slabs_.at(launch.out[i], feed));
    ++counters_.launches;
    if (profiling_) timeline_.events.push_back({device::EventKind::kernel, index, start, now(), start});
  }

  std::vector<LaunchSpec> list_;
  std::vector<std::vector<std::vector<double>>> buffers_;
  Slabs& slabs_;
  device::Counters& counters_;
  device::Timeline& timeline_;
  const bool& profiling_;
  uint64_t noise_;
};

class RefDevice : public device::Device {
 public:
  explicit RefDevice(uint64_t noise) : noise_(noise) {
    target_.backend = target_.name = "ref";
    target_.element_bytes = 8;
  }
  const device::Target& target() const override { return target_; }
  bool has_kernel(std::string_view kernel) const override {
    const ops::OpDef* op = ops::find(kernel);
    return op && !op->view;
  }
  std::vector<device::CandidateList> candidates() const override { return {}; }

  std::unique_ptr<device::Storage> allocate(const std::vector<int64_t>& slab_bytes, int feeds) override {
    auto slabs = std::make_unique<Slabs>();
    for (int64_t bytes : slab_bytes) slabs->data.emplace_back(static_cast<size_t>(ceil_div(bytes, 8)));
    slabs->feeds.resize(static_cast<size_t>(feeds - 1), slabs->data[0]);
    return slabs;
  }
  std::unique_ptr<device::Executable> bind(std::span<const LaunchSpec> launches, device::Storage& storage) override {
    return std::make_unique<Launches>(launches, static_cast<Slabs&>(storage), counters_, timeline_, profiling_, noise_);
  }
  void write(device::Storage& storage, int slab, int64_t offset, const void* data, int64_t bytes) override {
    const double start = now();
    std::memcpy(address(storage, slab, offset), data, static_cast<size_t>(bytes));
    ++counters_.writes;
    counters_.bytes_in += bytes;
    if (profiling_) timeline_.events.push_back({device::EventKind::write, -1, start, now(), start});
  }
  void read(device::Storage& storage, int slab, int64_t offset, void* data, int64_t bytes) override {
    const double start = now();
    std::memcpy(data, address(storage, slab, offset), static_cast<size_t>(bytes));
    ++counters_.reads;
    ++counters_.waits;
    counters_.bytes_out += bytes;
    if (profiling_) timeline_.events.push_back({device::EventKind::read, -1, start, now(), start});
  }
  bool maps_feeds() const override { return true; }
  std::byte* map(device::Storage& storage, int feed, int64_t offset, int64_t) override {
    return reinterpret_cast<std::byte*>(static_cast<Slabs&>(storage).slab(0, feed).data()) + offset;
  }
  void unmap(device::Storage&, int, int64_t bytes) override {
    ++counters_.writes;
    counters_.bytes_in += bytes;
  }
  device::Ticket submit() override { return 0; }
  void wait(device::Ticket) override {}
  void finish() override { ++counters_.waits; }
  const device::Counters& counters() const override { return counters_; }
  void start_profile() override {
    timeline_ = {};
    profiling_ = true;
  }
  device::Timeline stop_profile() override {
    profiling_ = false;
    return std::move(timeline_);
  }

 private:
  static std::byte* address(device::Storage& storage, int slab, int64_t offset) {
    return reinterpret_cast<std::byte*>(static_cast<Slabs&>(storage).data[static_cast<size_t>(slab)].data()) + offset;
  }
  device::Target target_;
  device::Counters counters_;
  device::Timeline timeline_;
  bool profiling_ = false;
  uint64_t noise_;
};

}  // namespace

std::unique_ptr<device::Device> make_device(uint64_t noise) { return std::make_unique<RefDevice>(noise); }

}  // namespace situ::ref
