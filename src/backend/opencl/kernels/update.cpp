// update.cpp -- sgd and adam over a whole group of parameters in one launch, through a table of chunks (update.cl).
#include <cmath>

#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {
namespace {

constexpr size_t kSlabs = 8;

// Builds the table and collects the slabs it refers to.
class Chunks {
 public:
  explicit Chunks(const Target& target) : chunk_(tuned(target, "update.CHUNK")) {}

  // One member: its operands in the order of update.cl, all of one size.
  void add(const std::vector<TensorArg>& operands) {
    for (const TensorArg& t : operands) SITU_ASSERT(t.dense(), "operands of an update are dense");
    const int64_t count = operands[0].count();
    for (int64_t start = 0; start < count; start += chunk_, ++rows_) {
      table_.words.push_back(int_of(std::min(chunk_, count - start)));
      for (const TensorArg& t : operands) add_place(t, start);
    }
  }

  void bind(Call& call) const {
    for (size_t i = 0; i < kSlabs; ++i) call.arg(slabs_[std::min(i, slabs_.size() - 1)]);
  }
  const TableArg& table() const { return table_; }
  int64_t rows() const { return rows_; }

 private:
  void add_place(const TensorArg& t, int64_t start) {
    const uint64_t place = static_cast<uint64_t>(t.offset / bytes_of(t.type.dtype) + start);
    const uint64_t high = (static_cast<uint64_t>(slab_index(t)) << 24) | (place >> 32);
    table_.words.push_back(static_cast<int32_t>(static_cast<uint32_t>(place)));
    table_.words.push_back(static_cast<int32_t>(static_cast<uint32_t>(high)));
  }
  size_t slab_index(const TensorArg& t) {
    for (size_t i = 0; i < slabs_.size(); ++i)
      if (slabs_[i].slab == t.slab) return i;
    if (slabs_.size() == kSlabs)
      fail_environment("the parameters of one update lie in more than {} buffers: group fewer of them", kSlabs);
    slabs_.push_back({.slab = t.slab, .offset = 0, .pitch = 1, .type = f32({})});
    return slabs_.size() - 1;
  }

  int64_t chunk_, rows_ = 0;
  TableArg table_;
  std::vector<TensorArg> slabs_;  // the slab's first element stands for the whole
};

Call update_call(const LaunchSpec& launch, const Target& target, const Chunks& chunks, size_t scalars) {
  Call call = make_call("update.cl", launch.node.op);
  call.define("VW", tuned(target, "vector.VW"));
  chunks.bind(call);
  for (size_t i = 0; i < scalars; ++i) call.arg(launch.in[i]);
  call.arg(chunks.table());
  return set_grid(call, chunks.rows() * tuned(target, "vector.WX"), 1, 1, tuned(target, "vector.WX"));
}

void add_floats(Call& call, std::initializer_list<double> values) {
  for (double v : values) call.arg(static_cast<float>(v));
}

Call bind_sgd(const LaunchSpec& launch, const Target& target) {
  const ir::Attrs& attrs = launch.node.attrs;
  const double momentum = attrs.number("momentum", 0);
  const bool slots = momentum != 0;
  const auto& in = launch.in;
  const auto& out = launch.out;
  Chunks chunks(target);
  for (size_t i = 1, o = 0; i < in.size(); i += slots ? 3 : 2, o += slots ? 2 : 1) {
    std::vector<TensorArg> operands{in[i], in[i + 1], out[o]};
    if (slots) operands.insert(operands.end(), {in[i + 2], out[o + 1]});
    chunks.add(operands);
  }
  Call call = update_call(launch, target, chunks, 1);
  call.define("MOMENTUM", slots);
  add_floats(call, {momentum, attrs.number("decay", 0)});
  add_ints(call, {attrs.flag("nesterov")});
  return call;
}

Call bind_adam(const LaunchSpec& launch, const Target& target) {
  const ir::Attrs& attrs = launch.node.attrs;
  const double beta1 = attrs.number("beta1"), beta2 = attrs.number("beta2"), decay = attrs.number("decay", 0);
  const bool decoupled = attrs.flag("decoupled");
  const auto& in = launch.in;
  const auto& out = launch.out;
  Chunks chunks(target);
  for (size_t i = 2, o = 0; i < in.size(); i += 4, o += 3)
    chunks.add({in[i], in[i + 1], out[o], in[i + 2], out[o + 1], in[i + 3], out[o + 2]});
  Call call = update_call(launch, target, chunks, 2);
  add_floats(call, {beta1, beta2, 1 - beta1, 1 - beta2, std::log(beta1), std::log(beta2), attrs.number("eps"),
                    decoupled ? 0 : decay, decoupled ? decay : 0});
  return call;
}

}  // namespace

KernelList update() {
  static constexpr Kernel kernels[] = {{"sgd", bind_sgd}, {"adam", bind_adam}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
