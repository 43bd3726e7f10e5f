// simd_info.h -- which instruction set the kernels are dispatched to on this machine.
#pragma once
#include <cstdint>
#include <string>

namespace situ::cpu {

struct SimdInfo {
  std::string name;             // "AVX2"
  int64_t lanes = 4;            // floats in a vector
  double flops_per_cycle = 16;  // rough, one core
};
SimdInfo simd_info();

}  // namespace situ::cpu
