// norm_fused.cpp -- statistics of columns and the function that reads them: in one launch where there are columns
// enough to keep the device busy, otherwise in launches of their own.
#include "ops/norm_fused.h"

#include "backend/opencl/kernels/call.h"
#include "backend/opencl/kernels/expression.h"
#include "backend/opencl/kernels/norm_columns.h"

namespace situ::opencl::kernels {
namespace {

using ops::NormFused;

enum Kind { kOneValue, kByColumn, kImage, kOther };  // EACH_OTHER of norm_fused.cl
Kind kind_of(const Shape& operand, const Shape& x) {
  if (operand == x) return kImage;
  if (operand.count() == 1) return kOneValue;
  return operand.count() == x.cols() && operand.cols() == x.cols() ? kByColumn : kOther;
}

Call bind(const LaunchSpec& launch, const Target& target) {
  const NormFused& form = ops::norm_fused_form(launch.node.op);
  const TensorArg& x = launch.in[0];
  const ExpressionSource source(ops::parse_expr(launch.node.attrs.text("expr")));
  Call call = make_call("norm_fused.cl", form.name);
  call.prelude = fmt::format("#define X_T {}\n#define D_T {}\n#define EACH_OTHER(F)", type_name(x),
                             form.operands > 1 ? type_name(launch.in[1]) : "float");
  for (size_t i = static_cast<size_t>(form.operands); i < launch.in.size(); ++i)
    call.prelude += fmt::format(" F(i{}, {}, {})", form.input_of_operand(static_cast<int>(i)),
                                static_cast<int>(kind_of(launch.in[i].shape(), x.shape())), type_name(launch.in[i]));
  call.prelude += "\n" + source.defines();
  const int64_t vw = vector_width(target, x.cols());
  call.define("VW", vw);
  if (form.statistics == "norm_sums") call.define("SUMS", 1);
  add_tensors(call, launch.in);
  add_tensors(call, launch.out);
  add_ints(call, {x.rows(), x.cols()});
  if (launch.node.attrs.has("eps")) call.arg(static_cast<float>(launch.node.attrs.number("eps")));
  for (float literal : source.literals) call.arg(literal);
  return set_grid(call, x.cols() / vw, 1, 1, tuned(target, "reduce.WX"));
}

// --- one launch, or apart -------------------------------------------------------------------------------------------
bool accepts_one(const ops::OpView& v, const Target& target) {
  const Shape& x = v.in(0).shape;
  for (int i = ops::norm_fused_form(v.op).operands; i < v.arity(); ++i)
    if (kind_of(v.in(i).shape, x) == kOther) return false;
  return x.cols() % vector_width(target, x.cols()) == 0;  // no two vectors share a column
}

// One launch goes over x twice, each work-item over its own columns: that keeps a device busy from columns.ITEMS
// vectors on; from half as many where x stays in a second-level cache and another launch costs more than a busy core
// gains; from half as many again where x is so large that rows in pieces come from memory less often.
constexpr int64_t kCachedElements = 262144, kLargeElements = 524288;

double one_seconds(const ops::OpView& v, const Target& target) {
  const Shape& x = v.in(0).shape;
  const int64_t vectors = x.cols() / vector_width(target, x.cols());
  const int64_t halves = x.count() <= kCachedElements ? 1 : x.count() <= kLargeElements ? 2 : 3;
  return (2 * vectors >= halves * tuned(target, "columns.ITEMS") ? 1 : 4) * kNominalLaunch;
}
double apart_seconds(const ops::OpView&, const Target&) { return 2 * kNominalLaunch; }

void expand_one(Expansion& e) { e.launch_op(e.view().op, e.inputs()); }

void expand_apart(Expansion& e) { device::expand_norm_apart(e, statistics_parts); }

}  // namespace

KernelList norm_fused() {
  static constexpr Kernel kernels[] = {{"moments_fused", bind, "* -> Y"}, {"norm_sums_fused", bind, "* -> Y"}};
  static constexpr device::Candidate candidates[] = {
      {"moments_fused", "one_launch", accepts_one, one_seconds, expand_one},
      {"moments_fused", "apart", nullptr, apart_seconds, expand_apart},
      {"norm_sums_fused", "one_launch", accepts_one, one_seconds, expand_one},
      {"norm_sums_fused", "apart", nullptr, apart_seconds, expand_apart}};
  return {kernels, candidates};
}

}  // namespace situ::opencl::kernels
