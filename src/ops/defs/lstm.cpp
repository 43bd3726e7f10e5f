// lstm.cpp -- a whole LSTM layer in one direction, and its gradient through time. Gates i, f, g, o as in PyTorch.
//   a_t = z_t + h_{t-1} w;   i, f, o = sigmoid(a), g = tanh(a);   c_t = f c_{t-1} + i g;   h_t = o tanh(c_t)
// z = x w_ih + b is one matmul for all steps, outside. `gates` holds i, f, g, o for the gradient.
//   dh_t += dz_{t+1} w^T;   dc_t += dh_t o (1 - tanh(c_t)^2) + f_{t+1} dc_{t+1};   dz = d(gates) through their slopes
#include "ops/sequence.h"

namespace situ::ops::defs {
namespace {

Types type(const OpView& v) {
  need(v.arity() == 2 && v.in(0).dtype == DType::f32 && v.in(1).dtype == DType::f32, "z and w must be f32");
  const Shape &z = v.in(0).shape, &w = v.in(1).shape;
  need(z.rank() == 3 && z[2] % 4 == 0, "z must be [N,T,4H]: the gates i, f, g, o side by side");
  const int64_t width = z[2] / 4;
  if (w.rank() != 2 || w[0] != width || w[1] != 4 * width) fail("w must be [{},{}]", width, 4 * width);
  return {f32({z[0], z[1], width}), f32({z[0], z[1], width}), f32(z)};
}

Types grad_type(const OpView& v) {
  need(v.arity() >= 4 && v.arity() <= 6, "c, gates, w and dh are needed, then dc, then dgates");
  for (const Type& t : v.ins) need(t.dtype == DType::f32, "all operands must be f32");
  const Shape& c = v.in(0).shape;
  need(c.rank() == 3, "c must be [N,T,H]");
  const Shape gates{c[0], c[1], 4 * c[2]};
  need(v.in(1).shape == gates, "gates must be [N,T,4H]");
  need(v.in(2).shape == Shape({c[2], 4 * c[2]}), "w must be [H,4H], the recurrent weight");
  need(v.in(3).shape == c && (v.arity() < 5 || v.in(4).shape == c), "dh and dc must have the shape of c");
  need(v.arity() < 6 || v.in(5).shape == gates, "dgates must have the shape of gates");
  return {f32(gates)};
}

void gradient(GradBuilder& g) {
  if (!g.wants(0) && !g.wants(1)) return;
  Values inputs{g.out(1), g.out(2), g.in(1), g.dout(0)};
  if (g.has_dout(1) || g.has_dout(2)) inputs.push_back(g.dout(1));
  if (g.has_dout(2)) inputs.push_back(g.dout(2));
  const Value dz = g.emit("lstm_grad", inputs, direction(g.attrs()));
  g.add(0, dz);
  if (g.wants(1)) g.add(1, recurrent_weight_gradient(g, g.out(0), dz));
}

Cost cost(const OpView& v) { return recurrent_cost(v.in(0).shape, v.out(0).shape[2]); }
Cost grad_cost(const OpView& v) { return recurrent_cost(v.out(0).shape, v.in(0).shape[2]); }

std::vector<Alias> gates_over_z(const OpView&) { return {{2, 0}}; }

void reference(const RefCall& call) {
  const RefTensor &z = call.in[0], &w = call.in[1], &h = call.out[0], &c = call.out[1], &gates = call.out[2];
  const Sequence s = sequence_of(call.attrs, h.shape());
  const int64_t width = s.width;
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t step = 0; step < s.time; ++step) {
      const int64_t row = s.row(n, step), before = row + s.back();
      double* gate = gates.data + row * 4 * width;
      for (int64_t j = 0; j < 4 * width; ++j) {
        double a = z[row * 4 * width + j];
        for (int64_t k = 0; k < width && step; ++k) a += h[before * width + k] * w[k * 4 * width + j];
        gate[j] = j / width == 2 ? std::tanh(a) : sigmoid(a);
      }
      for (int64_t j = 0; j < width; ++j) {
        const double kept = step ? gate[width + j] * c[before * width + j] : 0;
        c[row * width + j] = kept + gate[j] * gate[2 * width + j];
        h[row * width + j] = gate[3 * width + j] * std::tanh(c[row * width + j]);
      }
    }
}

// Errors go through the same steps: each gate's own rounding, and its slope times the error of the sum before it.
void magnitude(const RefCall& call) {
  reference(call);
  const RefTensor &z = call.in[0], &w = call.in[1], &eh = call.out[0], &ec = call.out[1], &eg = call.out[2];
  const Sequence s = sequence_of(call.attrs, eh.shape());
  const int64_t width = s.width;
  const std::vector<double> h(eh.data, eh.data + eh.count()), c(ec.data, ec.data + ec.count());
  const std::vector<double> gates(eg.data, eg.data + eg.count());
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t step = 0; step < s.time; ++step) {
      const int64_t row = s.row(n, step), before = row + s.back();
      const double* gate = gates.data() + row * 4 * width;
      double* error = eg.data + row * 4 * width;
      for (int64_t j = 0; j < 4 * width; ++j) {
        double a = std::fabs(z[row * 4 * width + j]);
        for (int64_t k = 0; k < width && step; ++k)
          a += (std::fabs(h[static_cast<size_t>(before * width + k)]) + eh[before * width + k]) *
               std::fabs(w[k * 4 * width + j]);
        const double slope = j / width == 2 ? 1 - gate[j] * gate[j] : gate[j] * (1 - gate[j]);
        error[j] = std::fabs(gate[j]) + slope * a;
      }
      for (int64_t j = 0; j < width; ++j) {
        const double kept = step ? error[width + j] * std::fabs(c[static_cast<size_t>(before * width + j)]) +
                                       gate[width + j] * ec[before * width + j]
                                 : 0;
        const double tanh_c = std::tanh(c[static_cast<size_t>(row * width + j)]);
        ec[row * width + j] = kept + error[j] * std::fabs(gate[2 * width + j]) + gate[j] * error[2 * width + j];
        eh[row * width + j] = error[3 * width + j] * std::fabs(tanh_c) +
                              gate[3 * width + j] * (std::fabs(tanh_c) + (1 - tanh_c * tanh_c) * ec[row * width + j]);
      }
    }
}

// The gradient of one step at channel j, given the whole dh of the step; `carry` goes from step to step. With terms:
// what errors in dh and carry, and rounding, come to.
void grad_channel(const RefCall& call, const Sequence& s, int64_t row, bool first, int64_t j, double dh, double& carry,
                  Terms t) {
  const auto arrived = [&](int operand, int64_t i) {
    return call.in.size() > static_cast<size_t>(operand) ? t.part(call.in[static_cast<size_t>(operand)][i]) : 0;
  };
  const RefTensor &c = call.in[0], &dz = call.out[0];
  const int64_t at = row * s.width + j, gate = row * 4 * s.width + j, w = s.width;
  const double* y = call.in[1].data + gate;
  const double i = y[0], f = y[w], g = y[2 * w], o = y[3 * w], value = std::tanh(c[at]);
  const double of_c = (1 - value * value) * std::fabs(c[at]);  // what rounding c does to its tanh
  const double tanh_c = t.terms ? std::fabs(value) + of_c : value;
  const double slope_c = t.tanh_slope(value) + (t.terms ? 2 * std::fabs(value) * of_c : 0);
  const double dc = arrived(4, at) + carry + dh * t.part(o) * slope_c;
  const double c_before = first ? 0 : c[at + s.back() * w];
  dz[gate] = (dc * t.part(g) + arrived(5, gate)) * t.sigmoid_slope(i);
  dz[gate + w] = (dc * t.part(c_before) + arrived(5, gate + w)) * t.sigmoid_slope(f);
  dz[gate + 2 * w] = (dc * t.part(i) + arrived(5, gate + 2 * w)) * t.tanh_slope(g);
  dz[gate + 3 * w] = (dh * tanh_c + arrived(5, gate + 3 * w)) * t.sigmoid_slope(o);
  carry = dc * t.part(f);
}

void grad_steps(const RefCall& call, Terms t) {
  const RefTensor &w = call.in[2], &dh_in = call.in[3], &dz = call.out[0];
  const Sequence s = sequence_of(call.attrs, call.in[0].shape());
  back_through_time(s, [&](int64_t row, int64_t step, int64_t j, double& carry) {
    const double dh = add_from_next(t.part(dh_in[row * s.width + j]), dz, w, s, row, step, j, t);
    grad_channel(call, s, row, step == 0, j, dh, carry, t);
  });
}
void grad_reference(const RefCall& call) { grad_steps(call, {.terms = false}); }
void grad_magnitude(const RefCall& call) { grad_steps(call, {.terms = true}); }

constexpr std::string_view kExamples =
    "f32[1,1,4], f32[1,4]; f32[2,3,20], f32[5,20]; f32[2,3,20], f32[5,20] {reverse=1}; f32[1,4,28]*2, f32[7,28];"
    "f32[3,1,32], f32[8,32]; f32[7,2,36], f32[9,36]*0.5; f32[9,3,60], f32[15,60]*0.3 {reverse=1};"
    "f32[4,5,64], f32[16,64]*0.3; f32[6,3,68]*3, f32[17,68]*0.3; f32[13,2,124], f32[31,124]*0.2 {reverse=1};"
    "f32[5,3,132], f32[33,132]*0.2; f32[2,3,256], f32[64,256]*0.1; f32[3,4,260], f32[65,260]*0.1 {reverse=1};"
    "f32[1,20,12], f32[3,12]; f32[2,2,1028], f32[257,1028]*0.05";
constexpr std::string_view kGradExamples =
    "f32[1,1,1], f32[1,1,4], f32[1,4], f32[1,1,1]; f32[2,3,5], f32[2,3,20], f32[5,20], f32[2,3,5];"
    "f32[2,3,5], f32[2,3,20], f32[5,20], f32[2,3,5], f32[2,3,5] {reverse=1};"
    "f32[2,3,5], f32[2,3,20], f32[5,20], f32[2,3,5], f32[2,3,5], f32[2,3,20];"
    "f32[1,4,7], f32[1,4,28], f32[7,28], f32[1,4,7] {reverse=1};"
    "f32[3,1,8], f32[3,1,32], f32[8,32], f32[3,1,8], f32[3,1,8], f32[3,1,32] {reverse=1};"
    "f32[7,2,9], f32[7,2,36], f32[9,36]*0.5, f32[7,2,9], f32[7,2,9];"
    "f32[9,3,15], f32[9,3,60], f32[15,60]*0.3, f32[9,3,15] {reverse=1};"
    "f32[4,5,16], f32[4,5,64], f32[16,64]*0.3, f32[4,5,16], f32[4,5,16], f32[4,5,64];"
    "f32[6,3,17], f32[6,3,68], f32[17,68]*0.3, f32[6,3,17]; f32[13,2,31], f32[13,2,124], f32[31,124]*0.2, f32[13,2,31];"
    "f32[5,3,33], f32[5,3,132], f32[33,132]*0.2, f32[5,3,33], f32[5,3,33] {reverse=1};"
    "f32[2,3,64], f32[2,3,256], f32[64,256]*0.1, f32[2,3,64]; f32[3,4,65], f32[3,4,260], f32[65,260]*0.1, f32[3,4,65];"
    "f32[2,2,257], f32[2,2,1028], f32[257,1028]*0.05, f32[2,2,257]";

}  // namespace

OpList lstm() {
  static constexpr OpDef defs[] = {{.name = "lstm",
                                    .signature = "(z: float, w: float) -> h, c, gates",
                                    .type = type,
                                    .grad = gradient,
                                    .cost = cost,
                                    .reference = reference,
                                    .magnitude = magnitude,
                                    .aliases = gates_over_z,
                                    .examples = kExamples},
                                   {.name = "lstm_grad",
                                    .signature = "(c: float, gates: float, w: float, dh: float, dc: float, "
                                                 "dgates: float) -> dz",
                                    .type = grad_type,
                                    .cost = grad_cost,
                                    .reference = grad_reference,
                                    .magnitude = grad_magnitude,
                                    .examples = kGradExamples}};
  return defs;
}
}  // namespace situ::ops::defs
