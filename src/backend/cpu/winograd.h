// winograd.h -- what the CPU's kernels over Winograd's tiles share: images cut into tiles, matrices of points in a
// task's scratch, and the products between them.
//
// A task takes its tiles in blocks small enough that transformed images and products stay in the cache. Its scratch is
// a row of a value of the graph.
#pragma once
#include "backend/cpu/tile_table.h"
#include "ops/winograd.h"

namespace situ::cpu {

struct TiledImages {
  float* data = nullptr;
  const float* zeros = nullptr;
  int64_t h = 0, w = 0, pitch = 0, channels = 0;
  int64_t tiles_h = 0, tiles_w = 0, out = 4, points = 36;
  int64_t top = 0, left = 0;  // how far the first tile reaches into the padding

  TiledImages() = default;
  TiledImages(const Operand& o, const ops::winograd::Tiles& tiles, int64_t before_y, int64_t before_x)
      : data(o.f32()),
        zeros(o.zeros),
        h(o.shape()[1]),
        w(o.shape()[2]),
        pitch(o.pitch),
        channels(o.cols()),
        tiles_h(tiles.h),
        tiles_w(tiles.w),
        out(tiles.out),
        points(tiles.points()),
        top(before_y),
        left(before_x) {}
};

// The first pixel of a tile, which may lie outside its image.
struct TilePlace {
  int64_t image, y, x;
  TilePlace(const TiledImages& i, int64_t tile)
      : image(tile / i.tiles_w / i.tiles_h),
        y(tile / i.tiles_w % i.tiles_h * i.out - i.top),
        x(tile % i.tiles_w * i.out - i.left) {}
  void next(const TiledImages& i) {
    x += i.out;
    if (x + i.left < i.tiles_w * i.out) return;
    x = -i.left;
    y += i.out;
    if (y + i.top < i.tiles_h * i.out) return;
    y = -i.top;
    ++image;
  }
};

// Where the SIDE x SIDE pixels of a tile lie; one outside the image is a vector of zeros, for all channels the same.
template <int SIDE>
struct TilePixels {
  const float* first = nullptr;  // if all are inside: of the first, and from one line to the next
  int64_t line = 0, pitch = 0;
  const float* at[SIDE * SIDE];
  int64_t step[SIDE * SIDE];  // 0: outside
  TilePixels(const TiledImages& i, const TilePlace& place) : line(i.w * i.pitch), pitch(i.pitch) {
    const float* origin = i.data + (place.image * i.h + place.y) * line + place.x * pitch;
    if (place.y >= 0 && place.y + SIDE <= i.h && place.x >= 0 && place.x + SIDE <= i.w) {
      first = origin;
      return;
    }
    for (int64_t r = 0, p = 0; r < SIDE; ++r) {
      const bool row = static_cast<uint64_t>(place.y + r) < static_cast<uint64_t>(i.h);
      for (int64_t s = 0; s < SIDE; ++s, ++p) {
        const bool inside = row && static_cast<uint64_t>(place.x + s) < static_cast<uint64_t>(i.w);
        at[p] = inside ? origin + r * line + s * pitch : i.zeros;
        step[p] = inside;
      }
    }
  }
};

// A matrix for each point. Transforms touch the same place of all of them: a line between them keeps those places from
// falling into one set of the cache.
struct Points {
  float* data = nullptr;
  int64_t pitch = 0, plane = 0;
  Points() = default;
  Points(float* from, int64_t rows, int64_t cols) : data(from), pitch(cols), plane(plane_of(rows, cols)) {}
  static int64_t plane_of(int64_t rows, int64_t cols) { return round_up(rows * cols, 16) + 16; }
  float* at(int64_t point, int64_t row, int64_t col) const { return data + point * plane + row * pitch + col; }
};

// y[i] = (y[i] or 0) + sum over k:  a[i * a_row + k * a_step] * b[panel, k], for m rows and panels [panel0, panel1).
struct PointProduct {
  int64_t points = 0, m = 0, k = 0;
  int64_t terms = 0;  // sums of so many are added to those before: a point's sum has no room for a long one's rounding
  Points a, y;
  int64_t a_row = 0, a_step = 0;
  const float* b = nullptr;  // of panel0 and the first point
  int64_t b_plane = 0, b_panel = 0, b_step = 0;
  int64_t panel0 = 0, panel1 = 0;  // b and y begin with panel0
  bool accumulate = false;
};
void multiply_points(const PanelSet& set, const PointProduct& p);

// The convolution that a node stands for; a weight gradient's is the one that has the weights.
struct WinogradConv {
  ops::Window window;  // slides over the images read
  int64_t images = 0, c = 0, o = 0, groups = 1;
  int64_t taps() const { return window.y.kernel * window.x.kernel; }
  bool fits(int64_t kernel) const { return groups == 1 && ops::winograd::fits(window, kernel); }
  ops::winograd::Tiles tiles(int64_t out) const { return ops::winograd::tiles_of(window, images, out); }
  int64_t pixels() const { return images * window.y.out * window.x.out; }
};
WinogradConv conv_of_forward(const ops::OpView& v);
WinogradConv conv_of_dx(const ops::OpView& v);
WinogradConv conv_of_dw(const ops::OpView& v);

// A number of tiles, channels or tasks.
inline int64_t winograd_tuning(const device::Tuning& tuning, std::string_view key, int64_t otherwise) {
  return std::max<int64_t>(1, tuning.get(key, otherwise));
}

// Estimates count multiply-adds; a channel of a point transformed costs as much as so many.
inline constexpr double kTransformCost = 8;
// A rank beside the other candidates of a convolution: before them where tiles take less than the direct sums.
double winograd_rank(const WinogradConv& conv, double cost);

}  // namespace situ::cpu
