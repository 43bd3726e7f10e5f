// copy.cpp -- elements moved to another place or another order of axes; 4-byte words of any type.
//
//   copy       y = x, any pitch on both sides
//   transpose  y[i0,i1,..] = x with axis k of y being axis perm[k] of x
// Both walk the result in order. If x's innermost axis differs from y's, two axes are walked in small squares, so that
// neither side jumps from line to line of the cache.
#include <algorithm>
#include <cstring>
#include <memory>

#include "backend/cpu/strided.h"
#include "backend/cpu/turn.h"

namespace situ::cpu {
namespace {

constexpr int64_t kWordsPerTask = 16384;
constexpr int64_t kSquare = 16;

// --- runs of y, each a run or a strided line of x
// ----------------------------------------------------------------------
struct Lines {
  const int32_t* x = nullptr;
  int32_t* y = nullptr;
  Axes x_axes;  // in the order of y's axes, innermost as long as both sides allow
  Axes y_axes;
  int64_t count = 0;
};

void copy_line(const int32_t* x, int64_t stride, int32_t* y, int64_t y_stride, int64_t n) {
  if (stride == 1 && y_stride == 1)
    std::memmove(y, x, static_cast<size_t>(n) * sizeof(int32_t));
  else
    for (int64_t i = 0; i < n; ++i) y[i * y_stride] = x[i * stride];
}

void copy_lines(const Lines& l, int64_t task) {
  const int64_t first = task * kWordsPerTask, n = std::min(kWordsPerTask, l.count - first);
  each_run(l.y_axes, first, n, [&](int64_t done, int64_t y_offset, int64_t y_count, int64_t y_stride) {
    each_run(l.x_axes, first + done, y_count, [&](int64_t part, int64_t offset, int64_t count, int64_t stride) {
      copy_line(l.x + offset, stride, l.y + y_offset + part * y_stride, y_stride, count);
    });
  });
}

Work bind_lines(const Operand& x, const Axes& x_axes, const Operand& y) {
  auto l = std::make_shared<Lines>();
  l->x = x.i32();
  l->y = y.i32();
  l->x_axes = collapsed(x_axes);
  l->y_axes = collapsed(axes_of(y));
  l->count = y.type.count();
  return {ceil_div(l->count, kWordsPerTask), [l](int64_t task) { copy_lines(*l, task); }};
}

Work bind_copy(const Call& call) { return bind_lines(call.in[0], axes_of(call.in[0]), call.out[0]); }

// --- transposes: y's last axis and the axis of y that is x's last, in squares
// -----------------------------------------
struct Squares {
  const int32_t* x = nullptr;
  int32_t* y = nullptr;
  Axes x_outer, y_outer;       // the other axes
  int64_t rows = 0, cols = 0;  // of y: along x's innermost axis, along y's
  int64_t x_col = 0;           // x's stride along y's last axis
  int64_t y_row = 0;           // y's stride along x's last axis
  int64_t row_blocks = 0;
  Turn turn = nullptr;
};

void copy_square(const Squares& s, const int32_t* x, int32_t* y, int64_t rows, int64_t cols) {
  if (rows == kSquare && cols == kSquare)
    return s.turn(reinterpret_cast<const float*>(x), s.x_col, cols, rows, reinterpret_cast<float*>(y), s.y_row);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) y[r * s.y_row + c] = x[r + c * s.x_col];
}

// A task: kSquare rows of one plane.
void copy_squares(const Squares& s, int64_t task) {
  const int64_t plane = task / s.row_blocks, row = task % s.row_blocks * kSquare;
  const int32_t* x = s.x + offset_of(s.x_outer, plane) + row;
  int32_t* y = s.y + offset_of(s.y_outer, plane) + row * s.y_row;
  for (int64_t col = 0; col < s.cols; col += kSquare)
    copy_square(s, x + col * s.x_col, y + col, std::min(kSquare, s.rows - row), std::min(kSquare, s.cols - col));
}

Work bind_transpose(const Call& call) {
  const Operand &x = call.in[0], &y = call.out[0];
  const ir::Ints& perm = call.attrs.ints("perm");
  const Axes from = axes_of(x), y_axes = axes_of(y);
  Axes x_axes;
  size_t across = 0;  // the axis of y that is x's last
  for (size_t i = 0; i < perm.size(); ++i) {
    x_axes.push_back(from[static_cast<size_t>(perm[i])]);
    if (perm[i] + 1 == static_cast<int64_t>(perm.size())) across = i;
  }
  if (perm.size() < 2 || across + 1 == perm.size()) return bind_lines(x, x_axes, y);
  auto s = std::make_shared<Squares>();
  s->x = x.i32();
  s->y = y.i32();
  s->rows = y_axes[across].extent;
  s->cols = y_axes.back().extent;
  s->x_col = x_axes.back().stride;
  s->y_row = y_axes[across].stride;
  s->row_blocks = ceil_div(s->rows, kSquare);
  s->turn = turn_function();
  for (size_t i = 0; i + 1 < perm.size(); ++i)
    if (i != across) {
      s->x_outer.push_back(x_axes[i]);
      s->y_outer.push_back(y_axes[i]);
    }
  const int64_t planes = y.type.count() / (s->rows * s->cols);
  return {planes * s->row_blocks, [s](int64_t task) { copy_squares(*s, task); }};
}

}  // namespace

namespace kernels {
KernelList copy() {
  static constexpr Kernel kernels[] = {{"copy", bind_copy}, {"transpose", bind_transpose}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
