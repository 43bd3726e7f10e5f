// halves.cpp -- which operands of a kernel may be stored as half, and the macros that say so to its source.
#include <algorithm>

#include "backend/opencl/kernel.h"
#include "backend/opencl/kernels/tunables.h"
#include "base/error.h"

namespace situ::opencl {
namespace {

// The word for an operand in Kernel::halves; empty if there is none.
std::string_view word_for(std::string_view halves, bool result, size_t index) {
  const size_t arrow = std::min(halves.find("->"), halves.size());
  std::string_view side = result ? halves.substr(std::min(arrow + 2, halves.size())) : halves.substr(0, arrow);
  for (size_t i = 0;; ++i) {
    side.remove_prefix(std::min(side.find_first_not_of(' '), side.size()));
    const std::string_view word = side.substr(0, side.find(' '));
    if (word.empty() || word == "*" || i == index) return word;
    side.remove_prefix(word.size());
  }
}

void define_types(Call& call, const Kernel& kernel, bool result, const std::vector<device::TensorArg>& operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].type.dtype != DType::f16) continue;
    const std::string_view word = word_for(kernel.halves, result, i);
    SITU_ASSERT(!word.empty() && word != "-", "kernel '{}' takes no half at {} {}", kernel.name,
                result ? "result" : "operand", i);
    if (word != "*") call.options += fmt::format(" -D{}_T=half", word);
  }
}

}  // namespace

bool takes_half(const Kernel& kernel, bool result, size_t index) {
  const std::string_view word = word_for(kernel.halves, result, index);
  return !word.empty() && word != "-";
}

Call call_of(const Kernel& kernel, const device::LaunchSpec& launch, const device::Target& target) {
  Call call = kernel.bind(launch, target);
  define_types(call, kernel, false, launch.in);
  define_types(call, kernel, true, launch.out);
  const auto half = [](const device::TensorArg& t) { return t.type.dtype == DType::f16; };
  if (std::ranges::any_of(launch.in, half) || std::ranges::any_of(launch.out, half)) {
    call.define("HALVES", 1);
    if (const int64_t form = kernels::tuned(target, "half.FORM")) call.define("HALF_FORM", form);
  }
  return call;
}

}  // namespace situ::opencl
