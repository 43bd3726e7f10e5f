#include "device/norm_launches.h"

#include "ops/norm_fused.h"

namespace situ::device {
namespace {

ir::Values launch_statistics(Expansion& e, std::string_view op, const ir::Values& inputs,
                             const std::vector<Type>& types, const ir::Attrs& attrs, PartsOf parts_of) {
  const Shape x = e.type(inputs[0]).shape;
  const int64_t parts = parts_of(e.target(), op, x);
  if (parts == 1) return e.launch_all(op, inputs, types, attrs);
  const bool moments = op == "moments";
  const int64_t sums = moments ? 2 : static_cast<int64_t>(types.size());  // mean and m2, or the sums themselves
  const ir::Value partial = e.launch(std::string(op) + "_partial", inputs, f32({sums, parts, x.cols()}), attrs);
  if (!moments) return e.launch_all("norm_sums_final", {partial}, types);
  return e.launch_all("moments_final", {partial}, types, ir::Attrs(attrs).set("rows", x.rows()));
}

}  // namespace

void expand_statistics(Expansion& e, PartsOf parts_of) {
  const ir::Values results = launch_statistics(e, e.view().op, e.inputs(), e.view().outs, e.attrs(), parts_of);
  for (size_t i = 0; i < results.size(); ++i) e.result(static_cast<int>(i), results[i]);
}

void expand_norm_apart(Expansion& e, PartsOf parts_of) {
  const ops::NormFused& form = ops::norm_fused_form(e.view().op);
  const Type& image = e.view().in(0);
  ir::Attrs attrs = e.attrs();
  attrs.erase("expr");
  const ir::Values statistics =
      launch_statistics(e, form.statistics, {e.inputs().begin(), e.inputs().begin() + form.operands},
                        {e.view().outs.begin() + 1, e.view().outs.end()}, attrs, parts_of);
  const ir::Values inputs = ops::function_inputs<ir::Value>(form, e.inputs(), statistics);
  std::vector<ops::Alias> aliases;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (e.type(inputs[i]) == image) aliases.push_back({0, static_cast<int>(i)});
  const ir::Attrs function{{"expr", e.attrs().text("expr")}, {"shape", image.shape.dims()}};
  e.result(0, e.launch("fused", inputs, image, function, aliases));
  for (size_t i = 0; i < statistics.size(); ++i) e.result(static_cast<int>(i) + 1, statistics[i]);
}

void expand_covariance(Expansion& e, PartsOf parts_of) {
  const Shape& x = e.view().in(0).shape;
  const Type parts = f32({parts_of(e.target(), "covariance", x), x.cols() + 1, x.cols()});
  const ir::Value partial = e.launch("covariance_partial", {e.in(0)}, parts);
  const ir::Values results = e.launch_all("covariance_final", {partial}, e.view().outs, {{"rows", x.rows()}});
  for (size_t i = 0; i < results.size(); ++i) e.result(static_cast<int>(i), results[i]);
}

void expand_norm_weights_grad(Expansion& e) {
  const Type columns = e.out_type(3);
  const ir::Values by_column =  // dw, dgamma, and all that reaches the product's mean and v
      e.launch_all("norm_weights_dw", e.inputs(), {e.out_type(2), columns, columns, columns});
  const ir::Values sums =
      e.launch_all("norm_weights_dcov", {e.in(2), by_column[2], by_column[3]}, {e.out_type(0), e.out_type(1)});
  e.result(0, sums[0]);
  e.result(1, sums[1]);
  e.result(2, by_column[0]);
  e.result(3, by_column[1]);
}

}  // namespace situ::device
