// twin_lines.h -- images packed as twins (twins.h), for convolutions: some lines of one, with the zeros around them, as
// one run of pixels. The zeros behind a line are those before the next. Then every tap is a distance, and any sixteen
// pixels that follow each other are a tile. With a stride, pixels that the same taps meet lie together, as images of
// their own (parts); a data gradient has its results in phases (conv_phases.h) instead.
#pragma once
#include <vector>

#include "backend/cpu/conv_phases.h"
#include "backend/cpu/twins.h"

namespace situ::cpu {

// Along one axis result u of a phase meets position u + shift of one part, which is the remainder of a tap's offset by
// the stride.
struct TwinAxis {
  std::vector<Phase> phases;
  int64_t scale = 1, in = 0, count = 0;  // stride of reading; pixels; results of the longest phase
  int64_t before = 0, after = 0;         // positions that taps reach beyond 0 and count - 1
  TwinAxis(std::vector<Phase> list, int64_t input);
  int64_t shift(const Tap& tap) const;
  int64_t part(const Tap& tap) const { return tap.offset - shift(tap) * scale; }
  int64_t there(int64_t part) const { return part < in ? ceil_div(in - part, scale) : 0; }  // positions of a part
  // From line to line so that what is read before one or behind it is zeros.
  int64_t line() const { return std::max(count + after, std::min(there(0), count + after) + before); }
};

// How the work of a convolution is cut, by shapes alone.
struct TwinLayout {
  TwinAxis y, x;
  int64_t images = 0, terms = 0, results = 0;  // channels read and made
  int64_t rows = 1, blocks = 1;                // lines of results of a unit; units of an image

  // Of the image that a convolution's window slides over, or of its data gradient: then of dy.
  TwinLayout(bool backward, const ops::Window& window, int64_t images, int64_t terms, int64_t results);
  int64_t parts() const { return y.scale * x.scale; }
  int64_t units() const { return images * blocks; }
  // Of one part: lines of a unit, with a few pixels before and, for the last tile, behind them.
  int64_t part_pixels() const { return x.before + (rows + y.before + y.after) * x.line() + x.after + kTwinSumRows; }
  int64_t packed_words() const { return parts() * part_pixels() * twin_row(terms); }
  // The part that a pair of taps meets, and its distance from a result, in words.
  int64_t part_of(const Tap& ty, const Tap& tx) const { return y.part(ty) * x.scale + x.part(tx); }
  int64_t distance(const Tap& ty, const Tap& tx) const {
    return (part_of(ty, tx) * part_pixels() + y.shift(ty) * x.line() + x.shift(tx)) * twin_row(terms);
  }
  double used() const;  // the share of the work that is not thrown away
};

struct TwinImages {
  TwinLayout layout;
  std::vector<bool> met;  // parts that taps read
  const float* x = nullptr;
  int64_t x_pitch = 0;
  PackTwinRows pack = nullptr;
  TwinImages(TwinLayout its_layout, const Operand& images);
};

// The packed lines that results of a unit are made from.
class TwinLines {
 public:
  TwinLines(const TwinImages& images, int64_t unit, float* packed);
  // Results of lines [v0, v1) of image `image`.
  int64_t image() const { return image_; }
  int64_t v0() const { return v0_; }
  int64_t v1() const { return v1_; }
  // Where result 0 of line v would lie in the first part.
  const float* at(int64_t v) const;
  // Packs what results of lines before `v` read.
  void need(int64_t v);

 private:
  void pack(int64_t py, int64_t px);

  const TwinImages& images_;
  const TwinLayout& l_;
  const int64_t image_, v0_, v1_, line_, row_;
  int64_t next_;
  float* const packed_;
};

}  // namespace situ::cpu
