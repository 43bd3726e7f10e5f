// gru.cpp -- a whole GRU layer in one direction, and its gradient through time. Gates r, z, n as in PyTorch.
//   u = h_{t-1} w + b;   r, z = sigmoid(zx + u);   n = tanh(zx_n + r u_n);   h_t = (1 - z) n + z h_{t-1}
// zx = x w_ih + b_ih is one matmul for all steps, outside. `gates` holds r, z, n and u_n for the gradient.
//   dzx is the gradient of zx, dzh that of u: they differ in n's part, which r scales. dh_{t-1} = dh_t z + dzh_t w^T
#include "ops/sequence.h"

namespace situ::ops::defs {
namespace {

Types type(const OpView& v) {
  need(v.arity() == 3, "zx, w and b are needed");
  for (const Type& t : v.ins) need(t.dtype == DType::f32, "all operands must be f32");
  const Shape& z = v.in(0).shape;
  need(z.rank() == 3 && z[2] % 3 == 0, "zx must be [N,T,3H]: the gates r, z, n side by side");
  const int64_t width = z[2] / 3;
  if (v.in(1).shape != Shape({width, 3 * width})) fail("w must be [{},{}]", width, 3 * width);
  if (v.in(2).shape != Shape({3 * width})) fail("b must be [{}]", 3 * width);
  return {f32({z[0], z[1], width}), f32({z[0], z[1], 4 * width})};
}

Types grad_type(const OpView& v) {
  need(v.arity() == 4 || v.arity() == 5, "h, gates, w and dh are needed, then dgates");
  for (const Type& t : v.ins) need(t.dtype == DType::f32, "all operands must be f32");
  const Shape& h = v.in(0).shape;
  need(h.rank() == 3, "h must be [N,T,H]");
  const Shape gates{h[0], h[1], 4 * h[2]};
  need(v.in(1).shape == gates, "gates must be [N,T,4H]");
  need(v.in(2).shape == Shape({h[2], 3 * h[2]}), "w must be [H,3H], the recurrent weight");
  need(v.in(3).shape == h, "dh must have the shape of h");
  need(v.arity() < 5 || v.in(4).shape == gates, "dgates must have the shape of gates");
  return {f32({h[0], h[1], 3 * h[2]}), f32({h[0], h[1], 3 * h[2]})};
}

void gradient(GradBuilder& g) {
  if (!g.wants(0) && !g.wants(1) && !g.wants(2)) return;
  Values inputs{g.out(0), g.out(1), g.in(1), g.dout(0)};
  if (g.has_dout(1)) inputs.push_back(g.dout(1));
  const Values d = g.emit_all("gru_grad", inputs, direction(g.attrs()));
  g.add(0, d[0]);
  if (g.wants(2)) g.add(2, g.sum_to(d[1], g.type(g.in(2)).shape));
  if (g.wants(1)) g.add(1, recurrent_weight_gradient(g, g.out(0), d[1]));
}

Cost cost(const OpView& v) { return recurrent_cost(v.in(0).shape, v.out(0).shape[2]); }
Cost grad_cost(const OpView& v) { return recurrent_cost(v.out(0).shape, v.in(0).shape[2]); }

// u of one row, column j; with `terms` the sum of absolute terms and of what errors eh of h come to.
double inner(const RefCall& call, const double* h, const double* eh, int64_t j) {
  const RefTensor &w = call.in[1], &b = call.in[2];
  const int64_t width = w.shape()[0];
  double sum = eh ? std::fabs(b[j]) : b[j];
  for (int64_t k = 0; k < width && h; ++k) {
    const double weight = w[k * 3 * width + j];
    sum += eh ? (std::fabs(h[k]) + eh[k]) * std::fabs(weight) : h[k] * weight;
  }
  return sum;
}

void reference(const RefCall& call) {
  const RefTensor &zx = call.in[0], &h = call.out[0], &gates = call.out[1];
  const Sequence s = sequence_of(call.attrs, h.shape());
  const int64_t width = s.width;
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t step = 0; step < s.time; ++step) {
      const int64_t row = s.row(n, step);
      const double* before = step ? h.data + (row + s.back()) * width : nullptr;
      const double* x = zx.data + row * 3 * width;
      double* gate = gates.data + row * 4 * width;
      for (int64_t j = 0; j < width; ++j) {
        const double u = inner(call, before, nullptr, 2 * width + j);
        const double r = sigmoid(x[j] + inner(call, before, nullptr, j));
        const double z = sigmoid(x[width + j] + inner(call, before, nullptr, width + j));
        const double m = std::tanh(x[2 * width + j] + r * u);
        gate[j] = r;
        gate[width + j] = z;
        gate[2 * width + j] = m;
        gate[3 * width + j] = u;
        h[row * width + j] = (1 - z) * m + (before ? z * before[j] : 0);
      }
    }
}

// Errors go through the same steps: each gate's own rounding, and its slope times the error of the sum before it.
void magnitude(const RefCall& call) {
  reference(call);
  const RefTensor &zx = call.in[0], &eh = call.out[0], &eg = call.out[1];
  const Sequence s = sequence_of(call.attrs, eh.shape());
  const int64_t width = s.width;
  const std::vector<double> h(eh.data, eh.data + eh.count()), gates(eg.data, eg.data + eg.count());
  const std::vector<double> no_errors(static_cast<size_t>(width));
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t step = 0; step < s.time; ++step) {
      const int64_t row = s.row(n, step), before = (row + s.back()) * width;
      const double *h_before = step ? h.data() + before : nullptr, *x = zx.data + row * 3 * width;
      const double *eh_before = step ? eh.data + before : no_errors.data(), *gate = gates.data() + row * 4 * width;
      double* error = eg.data + row * 4 * width;
      for (int64_t j = 0; j < width; ++j) {
        const double r = gate[j], z = gate[width + j], m = gate[2 * width + j], u = gate[3 * width + j];
        const auto sum = [&](int64_t part) { return inner(call, h_before, eh_before, part * width + j); };
        const double er = r + r * (1 - r) * (std::fabs(x[j]) + sum(0));
        const double ez = z + z * (1 - z) * (std::fabs(x[width + j]) + sum(1)), eu = sum(2);
        const double em = std::fabs(m) + (1 - m * m) * (std::fabs(x[2 * width + j]) + er * std::fabs(u) + r * eu);
        error[j] = er;
        error[width + j] = ez;
        error[2 * width + j] = em;
        error[3 * width + j] = eu;
        const double old = step ? std::fabs(h_before[j]) : 0, e_old = step ? eh_before[j] : 0;
        eh[row * width + j] = ez * std::fabs(m) + (1 - z) * em + ez * old + z * e_old;
      }
    }
}

// The gradient of one step at channel j, given the whole dh of the step; returns what goes straight to dh of the step
// before. With terms: what errors in dh, and rounding, come to.
double grad_channel(const RefCall& call, const Sequence& s, int64_t row, bool first, int64_t j, double dh, Terms t) {
  const int64_t w = s.width, at = row * 4 * w + j, to = row * 3 * w + j;
  const auto arrived = [&](int64_t gate) { return call.in.size() > 4 ? t.part(call.in[4][at + gate * w]) : 0; };
  const RefTensor &h = call.in[0], &gates = call.in[1], &dzx = call.out[0], &dzh = call.out[1];
  const double r = gates[at], z = gates[at + w], m = gates[at + 2 * w], u = gates[at + 3 * w];
  const double before = first ? 0 : h[(row + s.back()) * w + j];
  const double dm = (dh * (1 + t.part(-z)) + arrived(2)) * t.tanh_slope(m);
  const double dz = (dh * (t.part(before) + t.part(-m)) + arrived(1)) * t.sigmoid_slope(z);
  const double dr = (dm * t.part(u) + arrived(0)) * t.sigmoid_slope(r);
  dzx[to] = dzh[to] = dr;
  dzx[to + w] = dzh[to + w] = dz;
  dzx[to + 2 * w] = dm;
  dzh[to + 2 * w] = dm * t.part(r) + arrived(3);
  return dh * t.part(z);
}

void grad_steps(const RefCall& call, Terms t) {
  const RefTensor &w = call.in[2], &dh_in = call.in[3], &dzh = call.out[1];
  const Sequence s = sequence_of(call.attrs, call.in[0].shape());
  back_through_time(s, [&](int64_t row, int64_t step, int64_t j, double& carry) {
    const double dh = add_from_next(t.part(dh_in[row * s.width + j]) + carry, dzh, w, s, row, step, j, t);
    carry = grad_channel(call, s, row, step == 0, j, dh, t);
  });
}
void grad_reference(const RefCall& call) { grad_steps(call, {.terms = false}); }
void grad_magnitude(const RefCall& call) { grad_steps(call, {.terms = true}); }

constexpr std::string_view kExamples =
    "f32[1,1,3], f32[1,3], f32[3]; f32[2,3,15], f32[5,15], f32[15]; f32[2,3,15], f32[5,15], f32[15] {reverse=1};"
    "f32[1,4,21]*2, f32[7,21], f32[21]; f32[3,1,24], f32[8,24], f32[24]; f32[7,2,27], f32[9,27]*0.5, f32[27];"
    "f32[9,3,45], f32[15,45]*0.3, f32[45] {reverse=1}; f32[4,5,48], f32[16,48]*0.3, f32[48];"
    "f32[6,3,51]*3, f32[17,51]*0.3, f32[51]; f32[13,2,93], f32[31,93]*0.2, f32[93] {reverse=1};"
    "f32[5,3,99], f32[33,99]*0.2, f32[99]; f32[2,3,192], f32[64,192]*0.1, f32[192];"
    "f32[3,4,195], f32[65,195]*0.1, f32[195] {reverse=1}; f32[1,20,9], f32[3,9], f32[9];"
    "f32[2,2,771], f32[257,771]*0.05, f32[771]";
constexpr std::string_view kGradExamples =
    "f32[1,1,1], f32[1,1,4], f32[1,3], f32[1,1,1]; f32[2,3,5], f32[2,3,20], f32[5,15], f32[2,3,5];"
    "f32[2,3,5], f32[2,3,20], f32[5,15], f32[2,3,5], f32[2,3,20] {reverse=1};"
    "f32[1,4,7], f32[1,4,28], f32[7,21], f32[1,4,7] {reverse=1}; f32[3,1,8], f32[3,1,32], f32[8,24], f32[3,1,8];"
    "f32[7,2,9], f32[7,2,36], f32[9,27]*0.5, f32[7,2,9], f32[7,2,36];"
    "f32[9,3,15], f32[9,3,60], f32[15,45]*0.3, f32[9,3,15] {reverse=1};"
    "f32[4,5,16], f32[4,5,64], f32[16,48]*0.3, f32[4,5,16], f32[4,5,64];"
    "f32[6,3,17], f32[6,3,68], f32[17,51]*0.3, f32[6,3,17]; f32[13,2,31], f32[13,2,124], f32[31,93]*0.2, f32[13,2,31];"
    "f32[5,3,33], f32[5,3,132], f32[33,99]*0.2, f32[5,3,33] {reverse=1};"
    "f32[2,3,64], f32[2,3,256], f32[64,192]*0.1, f32[2,3,64]; f32[3,4,65], f32[3,4,260], f32[65,195]*0.1, f32[3,4,65];"
    "f32[2,2,257], f32[2,2,1028], f32[257,771]*0.05, f32[2,2,257]";

}  // namespace

OpList gru() {
  static constexpr OpDef defs[] = {
      {.name = "gru",
       .signature = "(zx: float, w: float, b: float) -> h, gates",
       .type = type,
       .grad = gradient,
       .cost = cost,
       .reference = reference,
       .magnitude = magnitude,
       .examples = kExamples},
      {.name = "gru_grad",
       .signature = "(h: float, gates: float, w: float, dh: float, dgates: float) -> dzx, dzh",
       .type = grad_type,
       .cost = grad_cost,
       .reference = grad_reference,
       .magnitude = grad_magnitude,
       .examples = kGradExamples}};
  return defs;
}
}  // namespace situ::ops::defs
