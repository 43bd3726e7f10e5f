// update.cpp -- the optimizers over a whole group of parameters in one launch, through a table of chunks (update.cl).
#include "ops/update.h"

#include <cmath>

#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {
namespace {

constexpr size_t kSlabs = 8;

// Builds the table and collects the slabs it refers to.
class Chunks {
 public:
  explicit Chunks(int64_t chunk) : chunk_(chunk) {}

  // One member: its operands in the order of update.cl, all of one size but the gradient, which may come in parts.
  void add(const std::vector<TensorArg>& operands, int64_t parts = 1) {
    for (const TensorArg& t : operands) SITU_ASSERT(t.dense(), "operands of an update are dense");
    const int64_t count = operands[0].count();
    for (int64_t start = 0; start < count; start += chunk_, ++rows_) {
      table_.words.insert(table_.words.end(), {int_of(std::min(chunk_, count - start)), int_of(parts), int_of(count)});
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

void add_floats(Call& call, std::initializer_list<double> values) {
  for (double v : values) call.arg(static_cast<float>(v));
}

// The call with its slabs, scalars, table and clipping; each update adds what its rule needs.
Call update_call(const LaunchSpec& launch, const Target& target) {
  const ops::UpdateLayout layout = ops::update_layout(launch.node.op, launch.node.attrs);
  const ops::UpdateSettings s(launch.node.attrs);
  const auto scalars = static_cast<size_t>(layout.scalars()), slots = static_cast<size_t>(layout.slots);
  Chunks chunks(tuned(target, "update.CHUNK"));
  for (size_t i = scalars, o = 0; i < launch.in.size(); i += 2 + slots, o += 1 + slots) {
    std::vector<TensorArg> operands{launch.in[i], launch.in[i + 1], launch.out[o]};
    for (size_t k = 0; k < slots; ++k) operands.insert(operands.end(), {launch.in[i + 2 + k], launch.out[o + 1 + k]});
    chunks.add(operands, ops::gradient_parts(launch.in[i + 1].type, launch.in[i].type));
  }
  Call call = make_call("update.cl", launch.node.op);
  call.define("VW", tuned(target, "vector.VW")).define("SLOTS", layout.slots).define("MOMENTUM", s.momentum != 0);
  call.define("CENTERED", s.centered).define("CLIPPED", layout.clipped).define("CLAMPED", s.clip_value > 0);
  if (s.guarded) call.define("GUARDED", 1);
  chunks.bind(call);
  for (size_t i = 0; i < scalars; ++i) call.arg(launch.in[i]);
  call.arg(chunks.table());
  add_floats(call, {s.clip_value});
  return set_grid(call, chunks.rows() * tuned(target, "vector.WX"), 1, 1, tuned(target, "vector.WX"));
}

Call bind_sgd(const LaunchSpec& launch, const Target& target) {
  const ops::UpdateSettings s(launch.node.attrs);
  Call call = update_call(launch, target);
  add_floats(call, {s.momentum, s.decay});
  add_ints(call, {s.nesterov});
  return call;
}

Call bind_adam(const LaunchSpec& launch, const Target& target) {
  const ops::UpdateSettings s(launch.node.attrs);
  Call call = update_call(launch, target);
  add_floats(call, {s.beta1, s.beta2, 1 - s.beta1, 1 - s.beta2, std::log(s.beta1), std::log(s.beta2), s.eps,
                    s.decoupled ? 0 : s.decay, s.decoupled ? s.decay : 0});
  return call;
}

Call bind_rmsprop(const LaunchSpec& launch, const Target& target) {
  const ops::UpdateSettings s(launch.node.attrs);
  Call call = update_call(launch, target);
  add_floats(call, {s.alpha, 1 - s.alpha, s.eps, s.momentum, s.decay});
  return call;
}

Call bind_adagrad(const LaunchSpec& launch, const Target& target) {
  const ops::UpdateSettings s(launch.node.attrs);
  Call call = update_call(launch, target);
  add_floats(call, {s.lr_decay, s.eps, s.decay});
  return call;
}

Call bind_lion(const LaunchSpec& launch, const Target& target) {
  const ops::UpdateSettings s(launch.node.attrs);
  Call call = update_call(launch, target);
  add_floats(call, {s.beta1, s.beta2, 1 - s.beta1, 1 - s.beta2, s.decay});
  return call;
}

Call bind_ema(const LaunchSpec& launch, const Target& target) {
  const ops::UpdateSettings s(launch.node.attrs);
  Call call = update_call(launch, target);
  add_floats(call, {s.decay, 1 - s.decay});
  return call;
}

Call bind_squares(const LaunchSpec& launch, const Target& target) {
  Chunks chunks(launch.node.attrs.integer("piece"));
  for (const TensorArg& x : launch.in) chunks.add({x});
  Call call = make_call("update.cl", launch.node.op);
  call.define("VW", tuned(target, "vector.VW"));
  chunks.bind(call);
  call.arg(chunks.table());
  add_tensors(call, launch.out);
  add_ints(call, {chunks.rows()});
  return set_grid(call, chunks.rows(), 1, 1, tuned(target, "vector.WX"));
}

}  // namespace

KernelList update() {
  static constexpr Kernel kernels[] = {
      {"sgd", bind_sgd},   {"adam", bind_adam}, {"rmsprop", bind_rmsprop},         {"adagrad", bind_adagrad},
      {"lion", bind_lion}, {"ema", bind_ema},   {"square_sum_parts", bind_squares}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
