// kernel.h -- what a CPU kernel is: it binds a placed launch to a number of independent tasks.
//
// Each file kernels/NAME.cpp defines one function `KernelList NAME()` in situ::cpu::kernels; the build finds it by the
// file's name. The number of tasks and what each does depend on shapes and tuning alone, never on the thread count, so
// results do not either. Binding may allocate; running a task may not.
#pragma once
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "device/candidate.h"
#include "device/launch.h"

namespace situ::cpu {

struct Operand {
  std::byte* data = nullptr;
  const float* zeros = nullptr;  // device::kZeroRun bytes of zeros
  int64_t pitch = 0;             // elements from one row of the last axis to the next
  Type type;
  float* f32() const { return reinterpret_cast<float*>(data); }
  int32_t* i32() const { return reinterpret_cast<int32_t*>(data); }
  const Shape& shape() const { return type.shape; }
  int64_t rows() const { return type.shape.rows(); }
  int64_t cols() const { return type.shape.cols(); }
};

struct Call {
  const ir::Attrs& attrs;
  std::vector<Operand> in;
  std::vector<Operand> out;
  const device::Target& target;
  const device::Tuning& tuning() const { return target.tuning; }
};

struct Work {
  int64_t tasks = 1;
  std::function<void(int64_t task)> run;
};

struct Kernel {
  std::string_view name;
  Work (*bind)(const Call& call) = nullptr;
};

struct KernelList {
  std::span<const Kernel> kernels;
  device::CandidateList candidates;
};
std::vector<KernelList> all_kernel_families();  // generated from the files in kernels/

}  // namespace situ::cpu
