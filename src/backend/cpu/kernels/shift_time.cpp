// shift_time.cpp -- y[n,t,:] = x[n,t-1,:] (reverse: t+1), zeros where there is none. A task is a range of rows.
#include <algorithm>
#include <cstring>

#include "backend/cpu/kernel.h"

namespace situ::cpu {
namespace {

constexpr int64_t kElementsPerTask = 8192;

Work bind_shift(const Call& call) {
  const Operand x = call.in[0], y = call.out[0];
  const bool reverse = call.attrs.flag("reverse");
  const int64_t time = x.shape()[1], step = std::max<int64_t>(1, kElementsPerTask / y.cols());
  return {ceil_div(y.rows(), step), [=](int64_t task) {
            for (int64_t row = task * step; row < std::min(y.rows(), (task + 1) * step); ++row) {
              float* to = y.f32() + row * y.pitch;
              if (row % time == (reverse ? time - 1 : 0))
                std::fill_n(to, y.cols(), 0.0f);
              else
                std::memcpy(to, x.f32() + (row + (reverse ? 1 : -1)) * x.pitch,
                            static_cast<size_t>(y.cols()) * sizeof(float));
            }
          }};
}

}  // namespace

namespace kernels {
KernelList shift_time() {
  static constexpr Kernel kernels[] = {{"shift_time", bind_shift}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
