#include "estimate/work.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace situ::estimate {
namespace {

struct Name {
  Class kind;
  std::string_view name;
};
constexpr Name kNames[] = {
    {Class::product, "product"},     {Class::convolution, "convolution"},
    {Class::winograd, "winograd"},   {Class::depthwise, "depthwise"},
    {Class::attention, "attention"}, {Class::recurrent, "recurrent"},
    {Class::pool, "pool"},           {Class::norm, "norm"},
    {Class::reduce, "reduce"},       {Class::pointwise, "pointwise"},
    {Class::arrange, "arrange"},     {Class::update, "update"},
};

// Part of a kernel's name -> class; the first that fits. What fits none is pointwise.
constexpr Name kParts[] = {
    {Class::depthwise, "depthwise"},
    {Class::winograd, "conv2d_winograd"},
    {Class::winograd, "conv2d_dx_winograd"},
    {Class::winograd, "conv2d_dw_winograd"},
    {Class::winograd, "winograd_small"},
    {Class::arrange, "winograd_"},
    {Class::convolution, "conv"},
    {Class::arrange, "pack_"},
    {Class::product, "gemm"},
    {Class::product, "matmul"},
    {Class::product, "few_"},
    {Class::reduce, "attention_delta"},
    {Class::attention, "attention"},
    {Class::recurrent, "lstm"},
    {Class::recurrent, "gru"},
    {Class::pool, "pool"},
    {Class::norm, "norm_"},
    {Class::norm, "_norm"},
    {Class::norm, "moments"},
    {Class::product, "covariance_partial"},
    {Class::norm, "covariance"},
    {Class::reduce, "reduce"},
    {Class::reduce, "sum"},
    {Class::reduce, "metrics"},
    {Class::reduce, "softmax"},
    {Class::arrange, "transpose"},
    {Class::arrange, "copy"},
    {Class::arrange, "pad"},
    {Class::arrange, "interleave"},
    {Class::arrange, "shift_time"},
    {Class::arrange, "gather"},
    {Class::arrange, "window"},
    {Class::arrange, "upsample"},
    {Class::update, "sgd"},
    {Class::update, "adam"},
    {Class::update, "adagrad"},
    {Class::update, "rmsprop"},
    {Class::update, "lion"},
    {Class::update, "ema"},
};

// Lanes that work on neighbouring columns of a result.
int64_t lanes(const device::Target& target) {
  return target.backend == "cpu" ? target.tuning.get("simd.lanes", 4) : target.tuning.get("gemm.VW", 4);
}

// Multiplications of Winograd's tiles: side^2 products of channels by results for up to out^2 pixels. Where images lie
// side by side, so many are counted with either.
double winograd_flops(const device::LaunchSpec& launch) {
  const ir::Attrs& attrs = launch.node.attrs;
  const int64_t out = attrs.integer("out"), side = attrs.integer("side", out + 2);
  const auto is = [&](std::string_view part) { return launch.node.op.find(part) != std::string::npos; };
  const device::TensorArg& results = is("dw") ? launch.in[1] : launch.out[0];
  const device::TensorArg& tiled = is("dx") ? launch.in[0] : results;  // whose pixels the tiles divide up
  const int64_t tiles = attrs.has("tiles")
                            ? attrs.ints("tiles")[5]
                            : tiled.shape()[0] * ceil_div(tiled.shape()[1], out) * ceil_div(tiled.shape()[2], out);
  return 2 * static_cast<double>(side * side * tiles) * static_cast<double>(launch.in[0].cols()) *
         static_cast<double>(results.cols()) / static_cast<double>(attrs.integer("images", 1));
}

// Values looked at: each window's taps; behind a pool whose windows overlap, those of all windows over a pixel.
double pool_flops(const device::LaunchSpec& launch) {
  const ir::Attrs& attrs = launch.node.attrs;
  const auto& kernel = attrs.ints("kernel", {2, 2});
  const auto& stride = attrs.ints("stride", kernel);
  const auto taps = static_cast<double>(kernel[0] * kernel[1]);
  const auto windows = static_cast<double>(ceil_div(kernel[0], stride[0]) * ceil_div(kernel[1], stride[1]));
  return static_cast<double>(launch.out[0].count()) * taps *
         (launch.node.op.find("grad") != std::string::npos ? windows : 1);
}

double padded(int64_t columns, int64_t vector) {
  return static_cast<double>(round_up(columns, vector)) / static_cast<double>(columns);
}

double arithmetic(const device::LaunchSpec& launch, Class kind, const device::Target& target) {
  const ir::Attrs& attrs = launch.node.attrs;
  if (kind == Class::winograd) return winograd_flops(launch);
  if (kind == Class::pool && !launch.out.empty()) return pool_flops(launch);
  if (kind != Class::product && kind != Class::convolution) return launch.flops;
  if (attrs.has("batch") && attrs.has("m") && attrs.has("n") && attrs.has("k"))
    return 2 * static_cast<double>(attrs.integer("batch") * attrs.integer("m")) *
           static_cast<double>(attrs.integer("k")) * static_cast<double>(round_up(attrs.integer("n"), lanes(target)));
  const std::string_view kernel = launch.node.op;
  const auto is = [&](std::string_view part) { return kernel.find(part) != kernel.npos; };
  const bool other_axis =
      is("planar") || is("images") || is("dw_few");  // vectors do not run along the result's columns
  return launch.flops * (other_axis || launch.out.empty() ? 1 : padded(launch.out[0].cols(), lanes(target)));
}

}  // namespace

std::span<const Class> all_classes() {
  static const auto classes = [] {
    std::array<Class, std::size(kNames)> list{};
    std::ranges::transform(kNames, list.begin(), &Name::kind);
    return list;
  }();
  return classes;
}

std::string_view name_of(Class kind) {
  for (const Name& n : kNames)
    if (n.kind == kind) return n.name;
  return "";
}

bool is_product(Class kind) {
  return kind == Class::product || kind == Class::convolution || kind == Class::winograd || kind == Class::depthwise ||
         kind == Class::attention || kind == Class::recurrent;
}

Class class_of(std::string_view kernel) {
  for (const Name& part : kParts)
    if (kernel.find(part.name) != kernel.npos) return part.kind;
  return Class::pointwise;
}

Work work_of(const device::LaunchSpec& launch, const device::Target& target) {
  Work work{launch.node.op, class_of(launch.node.op), 0, launch.bytes};
  work.flops = arithmetic(launch, work.kind, target);
  return work;
}

}  // namespace situ::estimate
