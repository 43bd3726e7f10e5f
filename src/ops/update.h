// update.h -- what all optimizers' ops share: their operands, settings and clipping; groups of parameters.
//
//   op(lr, [step], [factor], then w, g, slots... of each member) -> w, slots... of each member, in place
//   g may come in parts, [S, ..] with S times the elements of w: their sum in order is the gradient (not for ema)
//   op_factors: g may also come as a product's factors, [B, K + N] for a parameter [K, N], whose rows are those of the
//   layer's input and of dy side by side: g[k,n] = sum over b of f[b,k] f[b,K+n]. It is never written to memory then.
//   For the layer's bias, [N], the same tensor's last N columns are its rows: g[n] = sum over b of f[b,K+n]
//   guarded=1: a factor of 0 skips the step, whatever the gradients hold; all stays as it is
//   g = factor * g (clipped=1);   g = clamp(g, -clip_value, clip_value) (clip_value > 0);   then the op's own rule
// Which scalars and slots an op takes follows from its name and attributes, so passes and kernels need no list of them.
// ema is one of them without scalars: what it averages stands in the gradient's place.
#pragma once
#include <string_view>

#include "ops/op.h"

namespace situ::ops {

struct UpdateLayout {
  bool lr = true, step = false, clipped = false;  // the scalars it takes, in this order
  int slots = 0;
  int scalars() const { return int{lr} + int{step} + int{clipped}; }
  int each() const { return 2 + slots; }     // operands of a member: w, g, slots
  int results() const { return 1 + slots; }  // w, slots
};
bool is_update(std::string_view op);
inline constexpr std::string_view kFactors = "_factors";  // ends the names of updates that take a gradient's factors
// In how many rows the factors of a parameter's gradient come; 0 if it is none of a product.
int64_t gradient_factors(const Type& gradient, const Type& parameter);
// In how many parts the gradient of a parameter comes; 0 if it does not fit.
int64_t gradient_parts(const Type& gradient, const Type& parameter);
UpdateLayout update_layout(std::string_view op, const Attrs& attrs);

// Every setting of every rule; those an op does not have are 0.
struct UpdateSettings {
  explicit UpdateSettings(const Attrs& attrs);
  double momentum, decay, beta1, beta2, alpha, eps, lr_decay, clip_value;
  bool nesterov, decoupled, centered, guarded;
};

inline constexpr int kMostSlots = 3;

// One element: w, g and slots, replaced by w and slots. g arrives scaled and clamped.
struct UpdateElement {
  double w = 0, g = 0, slot[kMostSlots] = {};
};
struct UpdateScalars {
  double lr = 0, step = 0, factor = 1;
};
using UpdateRule = void (*)(const UpdateSettings&, const UpdateScalars&, UpdateElement&);

Types update_types(const OpView& view);
std::vector<Alias> update_aliases(const OpView& view);
void update_reference(const RefCall& call, const UpdateLayout& layout, UpdateRule rule);
// Each result with what a rounding of each operand does to it, to first order.
void update_magnitude(const RefCall& call, const UpdateLayout& layout, UpdateRule rule);

}  // namespace situ::ops
