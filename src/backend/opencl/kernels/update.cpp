// update.cpp -- the optimizers over a whole group of parameters in one launch, through a table of chunks (update.cl).
#include "ops/update.h"

#include <cmath>

#include "backend/opencl/kernels/places.h"

namespace situ::opencl::kernels {
namespace {

// Cuts the members of a group into chunks; each is a row of the table.
class Chunks {
 public:
  explicit Chunks(int64_t chunk) : chunk_(chunk) {}

  // One member: its operands in the order of update.cl, all of one size but the gradient, which may come in parts.
  void add(const std::vector<TensorArg>& operands, int64_t parts = 1) {
    for (const TensorArg& t : operands) SITU_ASSERT(t.dense(), "operands of an update are dense");
    const int64_t count = operands[0].count();
    for (int64_t start = 0; start < count; start += chunk_, ++rows_) {
      places_.add_numbers({std::min(chunk_, count - start), parts, count});
      for (const TensorArg& t : operands) places_.add_place(t, start);
    }
  }

  const Places& places() const { return places_; }
  int64_t rows() const { return rows_; }

 private:
  int64_t chunk_, rows_ = 0;
  Places places_;
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
  chunks.places().bind_slabs(call);
  for (size_t i = 0; i < scalars; ++i) call.arg(launch.in[i]);
  call.arg(chunks.places().table());
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
  chunks.places().bind_slabs(call);
  call.arg(chunks.places().table());
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
