#include "backend/cpu/conv_rows.h"

#include <algorithm>

namespace situ::cpu {
namespace {
constexpr int64_t kRowsAhead = 3, kLine = 16, kNear = 2;  // floats of a line; into the second-level cache
}  // namespace

void PaddedRows::copy_row(int64_t image, int64_t row, float* to) const {
  const ops::WindowAxis &wy = conv_.window.y, &wx = conv_.window.x;
  const int64_t line = conv_.line(), channels = conv_.channels;
  if (row < 0 || row >= wy.in) {
    std::fill_n(to, line, 0.0f);
    return;
  }
  const float* from = conv_.x + (image * wy.in + row) * wx.in * conv_.x_pitch;
  // Another core may have written the batch: what is copied next but two is asked for now.
  const float* const ahead = from + kRowsAhead * wx.in * conv_.x_pitch;
  for (int64_t i = 0; i < wx.in * conv_.x_pitch; i += kLine) __builtin_prefetch(ahead + i, 0, kNear);
  const int64_t columns = std::min(wx.in, line / channels - wx.before), left = wx.before * channels;
  std::fill_n(to, left, 0.0f);
  std::fill(to + left + columns * channels, to + line, 0.0f);
  if (conv_.x_pitch == channels)
    std::copy_n(from, columns * channels, to + left);
  else
    for (int64_t i = 0; i < columns; ++i) std::copy_n(from + i * conv_.x_pitch, channels, to + left + i * channels);
}

const float* const* PaddedRows::lines(int64_t row) {
  const ops::WindowAxis& wy = conv_.window.y;
  const int64_t first = row % wy.out * wy.stride, image = row / wy.out, line = conv_.line();
  if (image != image_) copied_ = first, image_ = image;
  for (copied_ = std::max(copied_, first); copied_ < first + wy.kernel; ++copied_)
    copy_row(image, copied_ - wy.before, copies_ + copied_ % wy.kernel * line);
  for (int64_t r = 0; r < wy.kernel; ++r) lines_[r] = copies_ + (first + r) % wy.kernel * line;
  return lines_;
}

void conv_row(const ConvRows& conv, const ConvColumns& columns, int64_t panel0, int64_t panel1,
              const float* const* lines, float* y, int64_t y_pitch, int64_t first_row) {
  const PanelSet& set = columns.panels;
  const ops::WindowAxis& wx = conv.window.x;
  const int64_t kernel_rows = conv.window.y.kernel, run = wx.kernel * conv.channels, step = wx.stride * conv.channels;
  if (columns.short_sums.run) {
    ShortSums sums{.step = step, .m = wx.out};
    std::copy_n(lines, kernel_rows, sums.line);
    return multiply_short(columns.short_sums, set, panel0, panel1, sums, y + first_row * y_pitch, y_pitch);
  }
  TileSegment segments[kMostKernelRows];
  for (int64_t r = 0; r < kernel_rows; ++r) segments[r] = {r * run * set.b_step, run};
  const float* pointers[kMostKernelRows * kMaxTileRows];
  int64_t rows[kMaxTileRows];
  Tile t{.a = pointers,
         .segments = segments,
         .count = kernel_rows,
         .b_step = set.b_step,
         .y = y,
         .y_pitch = y_pitch,
         .rows = rows,
         .epilogue = columns.epilogue.count ? &columns.epilogue : nullptr};
  for (int64_t q = 0; q < wx.out; q += set.mr) {
    t.m = std::min(set.mr, wx.out - q);
    for (int64_t i = 0; i < set.mr; ++i) {
      const int64_t pixel = q + std::min(i, t.m - 1);
      rows[i] = first_row + pixel;
      for (int64_t r = 0; r < kernel_rows; ++r) pointers[r * set.mr + i] = lines[r] + pixel * step;
    }
    for (int64_t panel = panel0; panel < panel1; ++panel) {
      t.b = set.b + panel * set.panel_stride;
      t.col = panel * set.tn;
      t.n = std::min(set.tn, set.n - t.col);
      (t.col + set.tn <= set.n ? set.tile : set.last_tile)(t);
    }
  }
}

}  // namespace situ::cpu
