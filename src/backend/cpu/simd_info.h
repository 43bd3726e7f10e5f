// simd_info.h -- which instruction set the kernels are dispatched to on this machine.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace situ::cpu {

struct SimdInfo {
  std::string name;             // "AVX2"
  int64_t lanes = 4;            // floats in a vector
  double flops_per_cycle = 16;  // rough, one core
  bool adds_beside = false;     // additions run beside multiply-adds, in units of their own
};

// The sets that kernels are compiled for and this processor has, best first.
std::vector<std::string> simd_sets();

// Chooses the set for every kernel bound from here on in this process: the best one, or the one that the environment
// variable SITU_SIMD names ("avx2"), for measurements and tests.
SimdInfo simd_info();

}  // namespace situ::cpu
