// kernel.h -- what an OpenCL kernel is: a .cl file and, beside it, a .cpp that turns a placed launch into a call.
//
// Each file kernels/NAME.cpp defines one function `KernelList NAME()` in situ::opencl::kernels; the build finds it by
// the file's name. Shapes are arguments; macros only select tile, epilogue kind and tap class, so few programs exist.
// A tensor argument is three kernel arguments (common.clh: TENSOR): the slab, the element offset, the pitch.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "device/candidate.h"
#include "device/launch.h"

namespace situ::opencl {

struct TableArg {
  std::vector<int32_t> words;  // constant data made at bind time, read through a __global const int*
};
// A tensor that is read through an image over its memory: three arguments too (operand.clh), the image, the element
// at which the tensor starts in it, and the pitch. A texel holds four elements.
struct ImageArg {
  device::TensorArg tensor;
  bool plane = false;  // a line of an image2d_t for each row, instead of an image1d_buffer_t
};
inline constexpr int64_t kTexel = 4, kPlaneRow = 1 << 16;  // kPlaneRow: from row to row, as kernels count in a plane
using Arg = std::variant<device::TensorArg, int32_t, float, TableArg, ImageArg>;

struct Call {
  std::string file;         // "gemm.cl"
  std::string kernel;       // the __kernel's name
  std::string options;      // " -DTM=6 -DNV=2"
  bool sub_groups = false;  // uses them: the compiler is told so
  std::string prelude;      // source put before the file's own (a fused expression)
  std::vector<Arg> args;
  std::array<size_t, 3> global{1, 1, 1};  // work-items; a multiple of local where local is set
  std::array<size_t, 3> local{0, 0, 0};   // 0: the driver chooses

  Call& define(std::string_view macro, int64_t value) {
    options += fmt::format(" -D{}={}", macro, value);
    return *this;
  }
  Call& arg(Arg a) {
    args.push_back(std::move(a));
    return *this;
  }
};

struct Kernel {
  std::string_view name;
  Call (*bind)(const device::LaunchSpec& launch, const device::Target& target) = nullptr;
  // The operands that may be stored as half, in order: "X - * -> Y". A name stands for the macro NAME_T, which becomes
  // `half` (common.clh); - is f32 only; a * is for all that follow, and bind says their types itself.
  std::string_view halves = {};
};

bool takes_half(const Kernel& kernel, bool result, size_t index);
// The call of a launch, with the types of its operands.
Call call_of(const Kernel& kernel, const device::LaunchSpec& launch, const device::Target& target);

struct KernelList {
  std::span<const Kernel> kernels;
  device::CandidateList candidates;
};
std::vector<KernelList> all_kernel_families();  // generated from the files in kernels/

}  // namespace situ::opencl
