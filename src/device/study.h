// study.h -- the study situ grows from, as data: what it measured, on which phones (arXiv 2202.10100).
//
// Backward passes of its four perceptrons at batch 32 with MNN's OpenCL back end; times as read off its table and
// figures in a public review, good to about 10%. What is set beside them here is a whole training step.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace situ::device::study {

inline constexpr std::string_view kSource = "arXiv 2202.10100";
inline constexpr int64_t kBatch = 32;

struct Phone {
  std::string_view name, chip, gpu;
  double matmul_gflops = 0, improved_matmul_gflops = 0;
};
struct Times {  // microseconds of a backward pass
  double cpu = 0, gpu = 0, gpu_improved = 0;
};
struct Model {
  std::string_view name, spec;
  int layers = 0;
  std::array<Times, 3> on;  // in the order of phones()
};

std::span<const Phone> phones();
std::span<const Model> models();

}  // namespace situ::device::study
