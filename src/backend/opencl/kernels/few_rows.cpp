// few_rows.cpp -- matmuls with at most eight rows, as the last layer of a small batch: bound by reading B.
#include "backend/opencl/kernels/tile.h"

namespace situ::opencl::kernels {
namespace {

constexpr int64_t kRows = 8;         // few_rows.cl
constexpr int64_t kMostTerms = 512;  // of one sum: more are sums of sums, as in gemm.cl

Product product_of(const ops::OpView& v) {
  return kernels::product_of(v.in(0), v.in(1), v.attrs.flag("ta"), v.attrs.flag("tb"));
}

int64_t parts_of(const Target& target, const Product& p) {
  return ceil_div(p.k, std::clamp<int64_t>(tuned(target, "gemm.SPLIT") / 2, 1, kMostTerms));
}

Call few_call(const LaunchSpec& launch, const Target& target, std::string_view kernel) {
  Call call = make_call("few_rows.cl", kernel);
  call.define("VW", tuned(target, "gemm.VW")).define("MAC_FORM", tuned(target, "gemm.MAC"));
  for (const TensorArg* t : {&launch.in[0], &launch.in[1], &launch.out[0]}) add_tensor(call, *t);
  return call;
}

Call bind_rows(const LaunchSpec& launch, const Target& target) {
  const int64_t m = launch.in[0].rows(), n = launch.in[1].cols(), k = launch.in[1].rows();
  const int64_t vw = tuned(target, "gemm.VW"), parts = launch.out[0].shape()[0];
  const int64_t span = round_up(std::max<int64_t>(tuned(target, "vector.CHUNK"), 1), 2 * vw);
  SITU_ASSERT(launch.out[0].dense(), "partial sums are dense");
  Call call = few_call(launch, target, "few_rows");
  add_tensor(call, launch.in.back());  // the bias; any tensor where there is none
  add_ints(call, {m, n, k, ceil_div(k, parts), span, launch.in.size() > 2});
  return set_grid(call, ceil_div(n, span), 1, parts, tuned(target, "gemm.WX"));
}

Call bind_dots(const LaunchSpec& launch, const Target& target) {
  const int64_t m = launch.in[0].rows(), n = launch.in[1].rows(), k = launch.in[1].cols();
  const int64_t span = 2 * ceil_div(n, 2 * tuned(target, "gemm.ITEMS"));
  Call call = few_call(launch, target, "few_dots");
  add_ints(call, {m, n, k, span});
  return set_grid(call, ceil_div(n, span), 1, 1, tuned(target, "gemm.WX"));
}

bool accepts_rows(const ops::OpView& v, const Target& target) {
  const Product p = product_of(v);
  return !p.ta && !p.tb && p.m <= kRows && p.n >= tuned(target, "gemm.VW") && p.k > 0;
}
bool accepts_dots(const ops::OpView& v, const Target& target) {
  const Product p = product_of(v);
  const bool long_sums = p.k > kMostTerms * tuned(target, "gemm.VW");
  return !p.ta && p.tb && p.m <= kRows && !long_sums && v.attrs.text("epilogue", "").empty();
}

// Reading B in the order it lies, which is twice as fast as the nominal rate that mixed accesses reach.
double read_seconds(const Product& p) {
  return 4 * static_cast<double>(p.n) * static_cast<double>(p.k) / (2 * kNominalBytes) + kNominalLaunch;
}
double seconds_rows(const ops::OpView& v, const Target& target) {
  const Product p = product_of(v);
  const double results = static_cast<double>(p.m * p.n);
  return read_seconds(p) + 8 * static_cast<double>(parts_of(target, p)) * results / kNominalBytes + kNominalLaunch;
}
double seconds_dots(const ops::OpView& v, const Target&) { return read_seconds(product_of(v)); }

void expand_rows(Expansion& e) {
  const Product p = product_of(e.view());
  const Type parts = f32({parts_of(e.target(), p), p.m, p.n});
  const std::string epilogue = e.attrs().text("epilogue", "");
  if (epilogue == "bias")
    return e.result(0, e.launch("sum_splits", {e.launch("few_rows", e.inputs(), parts)}, e.out_type(0)));
  ir::Values inputs{e.launch("few_rows", {e.in(0), e.in(1)}, parts)};
  for (ir::Value extra : operands_from(e, 2)) inputs.push_back(extra);
  e.result(0, e.launch("sum_splits", inputs, e.out_type(0), {{"epilogue", epilogue}}));
}
void expand_dots(Expansion& e) { e.result(0, e.launch("few_dots", {e.in(0), e.in(1)}, e.out_type(0))); }

}  // namespace

KernelList few_rows() {
  static constexpr Kernel kernels[] = {{"few_rows", bind_rows}, {"few_dots", bind_dots}};
  static constexpr device::Candidate candidates[] = {{"matmul", "few_rows", accepts_rows, seconds_rows, expand_rows},
                                                     {"matmul", "few_dots", accepts_dots, seconds_dots, expand_dots}};
  return {kernels, candidates};
}

}  // namespace situ::opencl::kernels
