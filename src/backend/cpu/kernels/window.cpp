// window.cpp -- pad and slice: each element of y is the one of x at a shifted place, or 0 where x has none.
//
// 4-byte words of any type. y is walked row by row (last axis); a task is a range of rows.
#include <algorithm>
#include <cstring>
#include <memory>

#include "backend/cpu/kernel.h"

namespace situ::cpu {
namespace {

constexpr int64_t kWordsPerTask = 16384;

struct Window {
  const int32_t* x = nullptr;
  int32_t* y = nullptr;
  Shape from, to;
  int64_t x_pitch = 0, y_pitch = 0;
  ir::Ints before;  // place in y of x's first element; negative in a slice
  int64_t rows_per_task = 1;
};

// The row of x that lies in row `row` of y; -1 if it is outside.
int64_t source_row(const Window& w, int64_t row) {
  int64_t result = 0, step = 1;
  for (int axis = w.to.rank() - 2; axis >= 0; --axis) {
    const int64_t i = row % w.to[axis] - w.before[static_cast<size_t>(axis)];
    if (i < 0 || i >= w.from[axis]) return -1;
    result += i * step;
    row /= w.to[axis];
    step *= w.from[axis];
  }
  return result;
}

void copy_rows(const Window& w, int64_t task) {
  const int64_t cols = w.to.cols(), shift = w.before.back(), last = std::min(w.to.rows(), (task + 1) * w.rows_per_task);
  const int64_t c0 = std::clamp<int64_t>(shift, 0, cols), c1 = std::clamp(shift + w.from.cols(), c0, cols);
  for (int64_t row = task * w.rows_per_task; row < last; ++row) {
    int32_t* y = w.y + row * w.y_pitch;
    const int64_t source = source_row(w, row), end = source < 0 ? c0 : c1;
    std::fill(y, y + c0, 0);
    if (end > c0) std::memcpy(y + c0, w.x + source * w.x_pitch + (c0 - shift), static_cast<size_t>(end - c0) * 4);
    std::fill(y + end, y + cols, 0);
  }
}

Work bind_window(const Call& call) {
  const Operand &x = call.in[0], &y = call.out[0];
  auto w = std::make_shared<Window>();
  w->x = x.i32();
  w->y = y.i32();
  w->from = x.shape();
  w->to = y.shape();
  w->x_pitch = x.pitch;
  w->y_pitch = y.pitch;
  w->before = call.attrs.ints("before");
  w->rows_per_task = std::max<int64_t>(1, kWordsPerTask / y.cols());
  return {ceil_div(y.rows(), w->rows_per_task), [w](int64_t task) { copy_rows(*w, task); }};
}

void expand_pad(device::Expansion& e) {
  e.result(0, e.launch("window", e.inputs(), e.out_type(0), {{"before", e.attrs().ints("before")}}));
}
void expand_slice(device::Expansion& e) {
  ir::Ints before = e.attrs().ints("begin");
  for (int64_t& v : before) v = -v;
  e.result(0, e.launch("window", e.inputs(), e.out_type(0), {{"before", before}}));
}

}  // namespace

namespace kernels {
KernelList window() {
  static constexpr Kernel kernels[] = {{"window", bind_window}};
  static constexpr device::Candidate candidates[] = {{.op = "pad", .name = "window", .expand = expand_pad},
                                                     {.op = "slice", .name = "window", .expand = expand_slice}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
