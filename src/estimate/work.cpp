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
    {Class::product, "product"},     {Class::convolution, "convolution"}, {Class::winograd, "winograd"},
    {Class::depthwise, "depthwise"}, {Class::attention, "attention"},     {Class::recurrent, "recurrent"},
    {Class::pool, "pool"},           {Class::norm, "norm"},               {Class::reduce, "reduce"},
    {Class::pointwise, "pointwise"}, {Class::arrange, "arrange"},         {Class::update, "update"},
};

// Part of a kernel's name -> class; the first that fits. What fits none is pointwise.
constexpr Name kParts[] = {
    {Class::depthwise, "depthwise"},   {Class::winograd, "conv2d_winograd"}, {Class::winograd, "conv2d_dw_winograd"},
    {Class::winograd, "winograd_small"}, {Class::arrange, "winograd_"},      {Class::convolution, "conv"},
    {Class::arrange, "pack_"},         {Class::product, "gemm"},             {Class::product, "matmul"},
    {Class::product, "few_"},          {Class::reduce, "attention_delta"},   {Class::attention, "attention"},
    {Class::recurrent, "lstm"},        {Class::recurrent, "gru"},            {Class::pool, "pool"},
    {Class::norm, "norm_"},            {Class::norm, "_norm"},               {Class::norm, "moments"},
    {Class::reduce, "reduce"},         {Class::reduce, "sum"},               {Class::reduce, "metrics"},
    {Class::reduce, "softmax"},        {Class::arrange, "transpose"},        {Class::arrange, "copy"},
    {Class::arrange, "pad"},           {Class::arrange, "interleave"},       {Class::arrange, "shift_time"},
    {Class::arrange, "gather"},        {Class::arrange, "window"},           {Class::arrange, "upsample"},
    {Class::update, "sgd"},            {Class::update, "adam"},              {Class::update, "adagrad"},
    {Class::update, "rmsprop"},        {Class::update, "lion"},              {Class::update, "ema"},
};

// Lanes that work on neighbouring columns of a result.
int64_t lanes(const device::Target& target) {
  return target.backend == "cpu" ? target.tuning.get("simd.lanes", 4) : target.tuning.get("gemm.VW", 4);
}

// Multiplications of Winograd's tiles: (out + 2)^2 products of channels by results for out^2 pixels.
double winograd_flops(const device::LaunchSpec& launch) {
  const ir::Attrs& attrs = launch.node.attrs;
  if (!attrs.has("tiles")) return launch.flops / 4;  // the CPU's tiles of 4 x 4: 36 products instead of 144
  const auto tiles = attrs.ints("tiles");
  const auto side = static_cast<double>(attrs.integer("out") + 2);
  return 2 * side * side * static_cast<double>(tiles[5]) * static_cast<double>(tiles[2]) *
         static_cast<double>(launch.out[0].cols());
}

double padded(int64_t columns, int64_t vector) {
  return static_cast<double>(round_up(columns, vector)) / static_cast<double>(columns);
}

double arithmetic(const device::LaunchSpec& launch, Class kind, const device::Target& target) {
  const ir::Attrs& attrs = launch.node.attrs;
  if (kind == Class::winograd) return winograd_flops(launch);
  if (kind != Class::product && kind != Class::convolution) return launch.flops;
  if (attrs.has("batch") && attrs.has("m") && attrs.has("n") && attrs.has("k"))
    return 2 * static_cast<double>(attrs.integer("batch") * attrs.integer("m")) *
           static_cast<double>(attrs.integer("k")) * static_cast<double>(round_up(attrs.integer("n"), lanes(target)));
  const std::string_view kernel = launch.node.op;
  const bool along_pixels = kernel.find("planar") != kernel.npos || kernel.find("images") != kernel.npos;
  return launch.flops * (along_pixels || launch.out.empty() ? 1 : padded(launch.out[0].cols(), lanes(target)));
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
