// work.h -- what a launch has to do, as an estimate sees it: a class of kernels, arithmetic, bytes.
//
// Arithmetic is what the kernel performs, not what its op is worth: a Winograd product counts its own multiplications,
// and a tile's columns count as whole vectors.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "device/launch.h"
#include "device/target.h"

namespace situ::estimate {

enum class Class {
  product,
  convolution,
  winograd,
  depthwise,
  attention,
  recurrent,
  pool,
  norm,
  reduce,
  pointwise,
  arrange,  // packing, transposing, copying: bytes and no arithmetic
  update,
};
std::span<const Class> all_classes();
std::string_view name_of(Class kind);
bool is_product(Class kind);  // bound by multiply-adds: none of these is faster than the device's peak

Class class_of(std::string_view kernel);

struct Work {
  std::string kernel;
  Class kind = Class::pointwise;
  double flops = 0, bytes = 0;
};
Work work_of(const device::LaunchSpec& launch, const device::Target& target);

}  // namespace situ::estimate
