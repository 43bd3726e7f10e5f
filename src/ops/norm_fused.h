// norm_fused.h -- the nodes of defs/norm_fused.cpp: statistics of x's columns, then a pointwise function that reads
// them.
//
// The node's operands are those of the statistics, then what else the function reads; its results are the function's,
// then the statistics. The function (attribute `expr`) sees the operands of the statistics, then those of their results
// that norms need, then the rest:
//
//   moments_fused(x, others..)                  y = f(x, mean, rstd, others..), mean, var, rstd
//   norm_sums_fused(x, dy, mean, rstd, others..)  y = f(x, dy, mean, rstd, dgamma, dbeta, others..), dgamma, dbeta
#pragma once
#include <span>

#include "ops/op.h"

namespace situ::ops {

struct NormFused {
  std::string_view name, statistics;  // this node's op, and that of the statistics alone
  int operands = 0;                   // of the statistics
  int results = 0;                    // of the statistics
  int seen[2] = {};                   // those the function reads
  // The function's input that is operand i of the node, and result i of the statistics (-1: it does not see that one).
  int input_of_operand(int i) const { return i < operands ? i : i + 2; }
  int input_of_result(int i) const { return i == seen[0] ? operands : i == seen[1] ? operands + 1 : -1; }
};
std::span<const NormFused> norm_fused_forms();
const NormFused& norm_fused_form(std::string_view name);  // by the node's op

// The function's inputs in order, given the node's operands and the results of the statistics.
template <typename T>
std::vector<T> function_inputs(const NormFused& form, std::span<const T> operands, std::span<const T> statistics) {
  std::vector<T> inputs(operands.begin(), operands.begin() + form.operands);
  for (int i : form.seen) inputs.push_back(statistics[static_cast<size_t>(i)]);
  inputs.insert(inputs.end(), operands.begin() + form.operands, operands.end());
  return inputs;
}

}  // namespace situ::ops
