#include "backend/cpu/twin_lines.h"

#include <algorithm>

namespace situ::cpu {
namespace {

constexpr int64_t kPackedWords = 64 * 1024;  // of a unit: in the L2 cache, beside the weights
constexpr int64_t kEnoughUnits = 8;

TwinAxis axis_of(bool backward, const ops::WindowAxis& axis) {
  return backward ? TwinAxis(backward_phases(axis), axis.out) : TwinAxis(forward_phases(axis), axis.in);
}

}  // namespace

TwinAxis::TwinAxis(std::vector<Phase> list, int64_t input) : phases(std::move(list)), in(input) {
  for (const Phase& phase : phases) {
    scale = phase.scale;
    count = std::max(count, phase.count);
    for (const Tap& tap : phase.taps) {
      before = std::max(before, -shift(tap));
      after = std::max(after, shift(tap));
    }
  }
}
int64_t TwinAxis::shift(const Tap& tap) const {  // rounded down
  return tap.offset >= 0 ? tap.offset / scale : -ceil_div(-tap.offset, scale);
}

TwinLayout::TwinLayout(bool backward, const ops::Window& window, int64_t image_count, int64_t channels, int64_t made)
    : y(axis_of(backward, window.y)),
      x(axis_of(backward, window.x)),
      images(image_count),
      terms(channels),
      results(made) {
  const int64_t halo = y.before + y.after, fits = kPackedWords / (parts() * x.line() * twin_row(terms));
  rows = std::clamp<int64_t>(fits - halo, std::min(y.count, 2 * halo + 1), y.count);
  blocks = std::max(ceil_div(y.count, rows), std::min(y.count, ceil_div(kEnoughUnits, images)));
  rows = ceil_div(y.count, blocks);
  blocks = ceil_div(y.count, rows);
}

double TwinLayout::used() const {
  const auto share = [](int64_t n) { return static_cast<double>(n) / static_cast<double>(round_up(n, kPieceLanes)); };
  return share(terms) * share(results) * static_cast<double>(x.count) / static_cast<double>(x.line());
}

TwinImages::TwinImages(TwinLayout its_layout, const Operand& images)
    : layout(std::move(its_layout)),
      met(static_cast<size_t>(layout.parts())),
      x(images.f32()),
      x_pitch(images.pitch),
      pack(pack_twin_rows_function()) {
  for (const Phase& py : layout.y.phases)
    for (const Phase& px : layout.x.phases)
      for (const Tap& ty : py.taps)
        for (const Tap& tx : px.taps) met[static_cast<size_t>(layout.part_of(ty, tx))] = true;
}

// The pixels before the first line are zeros, too; what is behind the last is read for results that are dropped.
TwinLines::TwinLines(const TwinImages& images, int64_t unit, float* packed)
    : images_(images),
      l_(images.layout),
      image_(unit / l_.blocks),
      v0_(unit % l_.blocks * l_.rows),
      v1_(std::min(v0_ + l_.rows, l_.y.count)),
      line_(l_.x.line()),
      row_(twin_row(l_.terms)),
      next_(v0_ - l_.y.before),
      packed_(packed) {
  for (int64_t part = 0; part < l_.parts(); ++part)
    std::fill_n(packed_ + part * l_.part_pixels() * row_, l_.x.before * row_, 0.0f);
}

const float* TwinLines::at(int64_t v) const { return packed_ + (l_.x.before + (v - v0_ + l_.y.before) * line_) * row_; }

void TwinLines::need(int64_t v) {
  for (; next_ < std::min(v, v1_) + l_.y.after; ++next_)
    for (int64_t py = 0; py < l_.y.scale; ++py)
      for (int64_t px = 0; px < l_.x.scale; ++px)
        if (images_.met[static_cast<size_t>(py * l_.x.scale + px)]) pack(py, px);
}

void TwinLines::pack(int64_t py, int64_t px) {
  const int64_t part = py * l_.x.scale + px, row = next_ * l_.y.scale + py;
  const int64_t index = part * l_.part_pixels() + l_.x.before + (next_ - v0_ + l_.y.before) * line_;
  float* const to = packed_ + index * row_;
  const bool inside = next_ >= 0 && row < l_.y.in;
  const int64_t pixels = inside ? std::min(l_.x.there(px), l_.x.count + l_.x.after) : 0;
  if (pixels > 0)
    images_.pack({.from = images_.x + ((image_ * l_.y.in + row) * l_.x.in + px) * images_.x_pitch,
                  .row_step = l_.x.scale * images_.x_pitch,
                  .rows = pixels,
                  .terms = l_.terms,
                  .to = to});
  std::fill_n(to + pixels * row_, (line_ - pixels) * row_, 0.0f);
}

}  // namespace situ::cpu
