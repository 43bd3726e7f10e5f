// pointwise.cpp -- every pointwise op, `fused` and `bias`: the expression becomes source before pointwise.cl.
//
// One program per expression and pattern of stretched inputs; shapes and strides are arguments.
#include <numeric>

#include "backend/opencl/kernels/axes.h"
#include "backend/opencl/kernels/expression.h"

namespace situ::opencl::kernels {
namespace {

// The source before pointwise.cl; strides[i] is that of input i along the last axis, moves[i] that it differs by row.
std::string prelude(const ExpressionSource& source, const std::vector<int64_t>& strides, const std::vector<bool>& moves,
                    const std::vector<TensorArg>& ins) {
  std::string text = "#define EACH_INPUT(F)";
  for (size_t i = 0; i < strides.size(); ++i)
    text += fmt::format(" F(i{}, {}, {}, {:d}, {})", i, i, strides[i], moves[i], type_name(ins[i]));
  return text + "\n" + source.defines();
}

// Inputs that differ by row, if the rows form one axis and some input has a value per column for all of them;
// otherwise empty.
std::vector<bool> moving(const std::vector<Axis>& axes, const Axis& row) {
  std::vector<bool> moves;
  bool shared = false;
  for (size_t i = 1; axes.size() == 1 && i < row.strides.size(); ++i) {
    moves.push_back(axes[0].strides[i] != 0);
    shared |= !moves.back() && row.strides[i] == 1;
  }
  return shared ? moves : std::vector<bool>{};
}

// How many rows to take as one, so that they are whole vectors: 1 where that is not possible, or not needed.
int64_t rows_to_join(const Axis& outer, const Axis& row, const std::vector<bool>& moves, int64_t vw) {
  const int64_t count = std::lcm(row.extent, vw) / row.extent;
  if (outer.extent % count != 0 || outer.strides[0] != row.extent) return 1;
  for (size_t i = 0; i < moves.size(); ++i)
    if (moves[i] && (row.strides[i + 1] != 1 || outer.strides[i + 1] != row.extent)) return 1;
  return count;
}

constexpr int64_t kStripVectors = 16;  // of a row that a work-item takes, if it has that many to do
constexpr int64_t kBlockVectors = 32;  // of a row times the rows that share a column's values: long rows are streams

Call bind_pointwise(const LaunchSpec& launch, const Target& target) {
  const int arity = static_cast<int>(launch.in.size());
  const std::string_view op = launch.node.op == "bias" ? "add" : std::string_view(launch.node.op);
  const ops::Expr expr = ops::expr_of(op, launch.node.attrs, arity);
  std::vector<TensorArg> operands{launch.out[0]};
  operands.insert(operands.end(), launch.in.begin(), launch.in.end());
  std::vector<Axis> axes = merged_axes(launch.out[0].shape(), operands);
  Axis row = axes.back();
  axes.pop_back();
  int64_t rows = 1;
  for (const Axis& a : axes) rows *= a.extent;
  std::vector<int64_t> strides(row.strides.begin() + 1, row.strides.end());
  if (row.extent == 1) strides.assign(strides.size(), 1);  // reads one lane either way: fewer programs

  const ExpressionSource source(expr);
  const std::vector<bool> moves = moving(axes, row);
  const bool columns = !moves.empty();
  Call call = make_call("pointwise.cl", columns ? "pointwise_columns" : "pointwise");
  call.prelude = prelude(source, strides, columns ? moves : std::vector<bool>(strides.size(), true), launch.in);
  const int64_t vw = tuned(target, "vector.VW"), chunk = std::max<int64_t>(1, tuned(target, "vector.CHUNK") / vw);
  const int64_t period = row.extent;
  if (columns) {
    const int64_t joined = rows_to_join(axes[0], row, moves, vw);
    rows /= joined;
    row.extent *= joined;
    axes[0].extent /= joined;
    for (int64_t& stride : axes[0].strides) stride *= joined;
  }
  call.define("VW", vw);
  add_tensors(call, launch.in);
  add_tensor(call, launch.out[0]);
  call.arg(table_of(axes, operands.size()));
  const int64_t in_row = ceil_div(row.extent, vw), units = rows * in_row;
  if (columns) {
    const int64_t span = std::min(in_row, ceil_div(chunk, kStripVectors)), height = chunk / span;
    call.define("COLUMNS", 1);
    add_ints(call, {rows, row.extent, period, height, span, std::clamp<int64_t>(kBlockVectors / in_row, 4, 16)});
    set_grid(call, ceil_div(rows, height) * ceil_div(in_row, span), 1, 1, tuned(target, "vector.WX"));
  } else {
    add_ints(call, {static_cast<int64_t>(axes.size()), rows, row.extent, chunk});
    set_grid(call, ceil_div(int_of(units), chunk), 1, 1, tuned(target, "vector.WX"));
  }
  for (float literal : source.literals) call.arg(literal);
  return call;
}

}  // namespace

KernelList pointwise() {
  static constexpr std::string_view kHalves = "* -> Y";
  static constexpr Kernel kernels[] = {{"fused", bind_pointwise, kHalves},
                                       {"bias", bind_pointwise, kHalves},
                                       {"neg", bind_pointwise, kHalves},
                                       {"exp", bind_pointwise, kHalves},
                                       {"log", bind_pointwise, kHalves},
                                       {"sqrt", bind_pointwise, kHalves},
                                       {"rsqrt", bind_pointwise, kHalves},
                                       {"abs", bind_pointwise, kHalves},
                                       {"reciprocal", bind_pointwise, kHalves},
                                       {"square", bind_pointwise, kHalves},
                                       {"relu", bind_pointwise, kHalves},
                                       {"relu6", bind_pointwise, kHalves},
                                       {"sigmoid", bind_pointwise, kHalves},
                                       {"tanh", bind_pointwise, kHalves},
                                       {"silu", bind_pointwise, kHalves},
                                       {"add", bind_pointwise, kHalves},
                                       {"sub", bind_pointwise, kHalves},
                                       {"mul", bind_pointwise, kHalves},
                                       {"div", bind_pointwise, kHalves},
                                       {"max", bind_pointwise, kHalves},
                                       {"min", bind_pointwise, kHalves},
                                       {"greater", bind_pointwise, kHalves},
                                       {"equal", bind_pointwise, kHalves},
                                       {"select", bind_pointwise, kHalves},
                                       {"relu_mask", bind_pointwise, kHalves},
                                       {"relu6_mask", bind_pointwise, kHalves},
                                       {"erf", bind_pointwise, kHalves},
                                       {"gelu", bind_pointwise, kHalves},
                                       {"gelu_slope", bind_pointwise, kHalves},
                                       {"gelu_tanh", bind_pointwise, kHalves},
                                       {"gelu_tanh_slope", bind_pointwise, kHalves},
                                       {"softplus", bind_pointwise, kHalves},
                                       {"hard_sigmoid", bind_pointwise, kHalves},
                                       {"hard_swish", bind_pointwise, kHalves},
                                       {"hard_swish_slope", bind_pointwise, kHalves},
                                       {"leaky_relu", bind_pointwise, kHalves},
                                       {"elu", bind_pointwise, kHalves},
                                       {"normalize", bind_pointwise, kHalves},
                                       {"norm_dx", bind_pointwise, kHalves}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
