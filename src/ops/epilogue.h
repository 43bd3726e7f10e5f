// epilogue.h -- the closed set of operations that matmul, convolutions and max_pool_grad apply before they store.
//
// The attribute `epilogue` is a list of words, applied in order; each word may take one extra operand, appended to the
// node's inputs in the same order:
//   bias      y += b[n]                  b: [N]
//   relu      y = max(y, 0)
//   relu6     y = min(max(y, 0), 6)
//   residual  y += r                     r: like y
//   mask      y = m > 0 ? y : 0          m: like y (the activation whose gradient this is)
//   mask6     y = 0 < m < 6 ? y : 0      m: like y
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ops/op.h"

namespace situ::ops {

enum class Epilogue { bias, relu, relu6, residual, mask, mask6 };

std::vector<Epilogue> epilogue_of(const Attrs& attrs);  // of the attribute `epilogue`, "bias+relu"
std::string_view name_of(Epilogue e);
bool takes_operand(Epilogue e);
bool takes_like_result(Epilogue e);                                 // an operand of the result's shape
void check_epilogue(const OpView& view, int first, const Type& y);  // operand types, for type rules
// Applies the epilogue to the dense result y; operands start at call.in[first].
void reference_epilogue(const RefCall& call, int first, const RefTensor& y);
// The same for magnitudes: y holds sums of absolute terms. Activations and masks leave it, so it stays an upper bound.
void magnitude_epilogue(const RefCall& call, int first, const RefTensor& y);
// The way back for a gradient rule: adds the gradients of the epilogue's operands and returns that of the plain result
// of `op`; kNoValue if no earlier operand wants one.
Value epilogue_gradient(GradBuilder& g, std::string_view op, int first);

}  // namespace situ::ops
