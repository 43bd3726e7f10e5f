// call.h -- what the kernels' .cpp files share: arguments that fit 32-bit indices, grids, vector widths, epilogues.
#pragma once
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "backend/opencl/kernel.h"
#include "backend/opencl/kernels/tunables.h"
#include "ops/epilogue.h"
#include "ops/window.h"

namespace situ::opencl::kernels {

using device::Expansion;
using device::LaunchSpec;
using device::Target;
using device::TensorArg;

inline Call make_call(std::string_view file, std::string_view kernel) {
  Call call;
  call.file = file;
  call.kernel = kernel;
  return call;
}

inline int32_t int_of(int64_t value) {
  SITU_ASSERT(value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max(),
              "{} does not fit the kernels' 32-bit indices", value);
  return static_cast<int32_t>(value);
}

inline void add_ints(Call& call, std::initializer_list<int64_t> values) {
  for (int64_t v : values) call.arg(int_of(v));
}
inline void add_ints(Call& call, const ir::Ints& values) {
  for (int64_t v : values) call.arg(int_of(v));
}

// As kernels know the type an operand is stored in.
inline std::string_view type_name(const TensorArg& tensor) {
  return tensor.type.dtype == DType::f16 ? "half" : "float";
}

// Kernels index a tensor with 32 bits from its start; the start itself may lie anywhere.
inline void add_tensor(Call& call, const TensorArg& tensor) {
  int_of(tensor.rows() * tensor.pitch);
  call.arg(tensor);
}
inline void add_tensors(Call& call, const std::vector<TensorArg>& tensors) {
  for (const TensorArg& t : tensors) add_tensor(call, t);
}

// The grid, rounded up to whole groups of wx x wy: kernels return where they have no work.
inline Call& set_grid(Call& call, int64_t x, int64_t y, int64_t z, int64_t wx, int64_t wy = 1) {
  call.define("WX", wx).define("WY", wy);
  call.local = {static_cast<size_t>(wx), static_cast<size_t>(wy), 1};
  call.global = {static_cast<size_t>(round_up(x, wx)), static_cast<size_t>(round_up(y, wy)), static_cast<size_t>(z)};
  return call;
}

// Kernels that walk channel vectors start the last one early, so a vector must not be longer than the row.
inline int64_t vector_width(const Target& target, int64_t cols) {
  int64_t vw = tuned(target, "vector.VW");
  while (vw > cols) vw /= 2;
  return vw;
}

// How many channel vectors a work-item does; whole: those of whole rows, so it alone writes what two of them share.
struct Units {
  int64_t chunk;
  bool whole;
};
inline Units units_for(const Target& target, int64_t vw, int64_t vectors_in_row) {
  const int64_t chunk = std::max<int64_t>(1, tuned(target, "vector.CHUNK") / vw);
  if (chunk < vectors_in_row) return {chunk, false};
  return {chunk / vectors_in_row * vectors_in_row, true};
}

inline int64_t epilogue_code(ops::Epilogue e) {
  switch (e) {  // tile.clh
    case ops::Epilogue::relu:
      return 1;
    case ops::Epilogue::relu6:
      return 2;
    case ops::Epilogue::bias:
      return 3;
    case ops::Epilogue::residual:
      return 4;
    case ops::Epilogue::mask:
      return 5;
    case ops::Epilogue::mask6:
      return 6;
  }
  return 0;
}

inline constexpr size_t kEpilogueSteps = 4;

// Operands of the steps begin at `first` of the launch's.
inline void define_epilogue(Call& call, const LaunchSpec& launch, size_t first) {
  const auto steps = ops::epilogue_of(launch.node.attrs);
  SITU_ASSERT(steps.size() <= kEpilogueSteps, "an epilogue has at most {} steps", kEpilogueSteps);
  for (size_t i = 0; i < steps.size(); ++i) {
    call.define(fmt::format("E{}", i), epilogue_code(steps[i]));
    const bool reads = epilogue_code(steps[i]) >= epilogue_code(ops::Epilogue::bias);
    if (reads && launch.in[first++].type.dtype == DType::f16) call.options += fmt::format(" -DE{}_T=half", i);
  }
}

enum { kH, kW, kC, kOh, kOw, kO, kR, kS, kSh, kSw, kPt, kPl, kDh, kDw };  // places in window_ints

// The arguments of WINDOW_PARAMS (window.clh), carried from expansion to binding as one list.
inline ir::Ints window_ints(const ops::Window& w, int64_t c, int64_t o) {
  return {w.y.in,     w.x.in,     c,          w.y.out,    w.x.out,      o,           w.y.kernel, w.x.kernel,
          w.y.stride, w.x.stride, w.y.before, w.x.before, w.y.dilation, w.x.dilation};
}
// The same window with the large image written and the small one read: gradients.
inline ir::Ints reversed_window_ints(const ops::Window& w, int64_t c, int64_t o) {
  ir::Ints ints = window_ints(w, c, o);
  std::swap(ints[0], ints[3]);
  std::swap(ints[1], ints[4]);
  return ints;
}

// Nominal rates for comparing candidates. They are constants, not the device's: a choice that followed the number of
// cores would make results depend on it.
inline constexpr double kNominalFlops = 100e9, kNominalBytes = 10e9, kNominalLaunch = 3e-6;

}  // namespace situ::opencl::kernels
