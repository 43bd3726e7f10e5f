// interleave.cpp -- images side by side, for kernels whose lanes are images (conv_images.cpp, conv_dw_images.cpp), and
// back.
//
//   interleave_images  y[b, i, j, c, n] = x[b * L + n, i - top, j - left, c]      zeros around the image
//   spread_images      y[b * L + n, i, j, c] = x[b, i, j, c, n]
// A task is a line of pixels of one sheaf: a matrix of runs, turned over in squares.
#include <algorithm>

#include "backend/cpu/kernel.h"
#include "backend/cpu/turn.h"
#include "base/error.h"

namespace situ::cpu {
namespace {
struct Lines {
  Turn turn = nullptr;
  const float* x = nullptr;
  float* y = nullptr;
  int64_t images = 0, h = 0, w = 0, channels = 0, pitch = 0;  // of the images of one sheaf
  int64_t top = 0, left = 0, lines = 0, columns = 0;          // of the sheaf: where the image begins, and its size
};

void interleave_line(const Lines& l, int64_t task) {
  const int64_t sheaf = task / l.lines, line = task % l.lines;
  const int64_t pixel = l.channels * l.images, step = l.h * l.w * l.pitch, i = line - l.top;
  const int64_t left = std::min(l.left, l.columns);
  const int64_t inside = i < 0 || i >= l.h ? 0 : std::min(l.columns - left, l.w);
  float* y = l.y + task * l.columns * pixel;
  std::fill_n(y, left * pixel, 0.0f);
  std::fill_n(y + (left + inside) * pixel, (l.columns - left - inside) * pixel, 0.0f);
  y += left * pixel;
  const float* x = l.x + sheaf * l.images * step + i * l.w * l.pitch;
  if (l.pitch == l.channels) return l.turn(x, step, l.images, inside * l.channels, y, l.images);
  for (int64_t j = 0; j < inside; ++j) l.turn(x + j * l.pitch, step, l.images, l.channels, y + j * pixel, l.images);
}

void spread_line(const Lines& l, int64_t task) {
  const int64_t sheaf = task / l.lines, line = task % l.lines;
  const int64_t pixel = l.channels * l.images, step = l.h * l.w * l.pitch;
  const float* x = l.x + task * l.w * pixel;
  float* y = l.y + sheaf * l.images * step + line * l.w * l.pitch;
  if (l.pitch == l.channels) return l.turn(x, l.images, l.w * l.channels, l.images, y, step);
  for (int64_t j = 0; j < l.w; ++j) l.turn(x + j * pixel, l.images, l.channels, l.images, y + j * l.pitch, step);
}

Lines lines_of(const Call& call, const Operand& images, const Operand& sheaf) {
  const Shape &s = images.shape(), &to = sheaf.shape();
  SITU_ASSERT(sheaf.pitch == sheaf.cols() && s[0] % to[0] == 0, "whole sheaves, and dense");
  const ir::Ints before = call.attrs.ints("before", {0, 0});
  return {.turn = turn_function(),
          .x = call.in[0].f32(),
          .y = call.out[0].f32(),
          .images = s[0] / to[0],
          .h = s[1],
          .w = s[2],
          .channels = s[3],
          .pitch = images.pitch,
          .top = before[0],
          .left = before[1],
          .lines = to[1],
          .columns = to[2]};
}

Work bind_interleave(const Call& call) {
  const Lines l = lines_of(call, call.in[0], call.out[0]);
  const int64_t sheaves = call.out[0].shape()[0];
  return {l.lines * sheaves, [l](int64_t task) { interleave_line(l, task); }};
}
Work bind_spread(const Call& call) {
  const Lines l = lines_of(call, call.out[0], call.in[0]);
  const int64_t sheaves = call.in[0].shape()[0];
  return {l.lines * sheaves, [l](int64_t task) { spread_line(l, task); }};
}

}  // namespace

namespace kernels {
KernelList interleave() {
  static constexpr Kernel kernels[] = {{"interleave_images", bind_interleave}, {"spread_images", bind_spread}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
