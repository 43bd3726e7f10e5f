// conv_images.cl -- convolutions with few results per pixel: the lanes of a vector are images, not channels.
//
//   y[n, oy, ox, o] = epilogue(sum_{r,s,c} x[n, oy*sh - pt + r*dh, ox*sw - pl + s*dw, c] * w[r, s, c, o])
//   over the taps (r, s) inside the image; x comes as sheaves [N / VW, lines, columns, c, VW] (interleave.cl), where the
//   image begins at (top, left); y is NHWC, or sheaves of its own size
//
// With 6 filters a vector of output channels is mostly empty. Here a vector is one value of each of VW images, every lane
// meets the same taps, and a tap outside the image is left out: the border costs neither tests nor products with zeros.
// A work-item keeps TM results x NV sheaves of one pixel; weights are scalars, read where they are. The finished tile
// is turned in registers and stored with channels last; as sheaves it is stored as it is.
#include "tile.clh"
#include "turn.clh"
#include "window.clh"

#if TM == 1
#define TURNED 1
#elif TM == 2
#define TURNED 2
#elif TM <= 4
#define TURNED 4
#elif TM <= 8
#define TURNED 8
#else
#define TURNED 16
#endif
DEFINE_TURN(turn_results, TURNED)  // TM rounded up to a power of two

typedef struct {
  int from, to;
} Taps;

// The taps of a window that starts at `start` which meet an image of `extent`.
static inline Taps taps_inside(int start, int taps, int dilation, int extent) {
  Taps t;
  t.from = start < 0 ? (-start + dilation - 1) / dilation : 0;
  t.to = start < extent ? min(taps, (extent - 1 - start) / dilation + 1) : 0;
  return t;
}

// Where the lanes of a vector go: images from n on, of `images`, each of in_image pixels; all at the same pixel.
typedef struct {
  int n, images, in_image, pixel;
} Place;

// The operand of a step of the epilogue at channel `col`: a bias is one number, others are gathered from the images.
#define DEFINE_OPERAND(NAME, T)                                                                            \
  static inline fv NAME(int step, Extra e, Place p, int col) {                                             \
    __global const T* x = (__global const T*)e.x;                                                          \
    if (step < BIAS) return (fv)(0.0f);                                                                    \
    if (step == BIAS) return (fv)(AT(T, x, col));                                                          \
    float t[VW];                                                                                           \
    _Pragma("unroll") for (int l = 0; l < VW; ++l) t[l] =                                                  \
        p.n + l < p.images ? AT(T, x, ((p.n + l) * p.in_image + p.pixel) * e.pitch + col) : 0.0f;          \
    return LOAD(t);                                                                                        \
  }
DEFINE_OPERAND(operand_of_images_float, float)
#if HALVES
DEFINE_OPERAND(operand_of_images_half, half)
#endif
#define OPERAND_OF_IMAGES(N) TYPED(operand_of_images_, E##N##_T)(E##N, e[N], p, col)

static inline fv epilogue_of_images(fv v, const Extra* e, Place p, int col) {
  v = epilogue_step(E0, v, OPERAND_OF_IMAGES(0));
  v = epilogue_step(E1, v, OPERAND_OF_IMAGES(1));
  v = epilogue_step(E2, v, OPERAND_OF_IMAGES(2));
  return epilogue_step(E3, v, OPERAND_OF_IMAGES(3));
}

// TM neighbouring floats.
static inline void store_results_float(const float* from, __global float* to) {
#if TM & 8
  vstore8(vload8(0, from), 0, to);
#endif
#if TM & 4
  vstore4(vload4(0, from + (TM & 8)), 0, to + (TM & 8));
#endif
#if TM & 2
  vstore2(vload2(0, from + (TM & 12)), 0, to + (TM & 12));
#endif
#if TM & 1
  to[TM - 1] = from[TM - 1];
#endif
}
#if HALVES
static inline void store_results_half(const float* from, __global half* to) {
#pragma unroll
  for (int i = 0; i < TM; ++i) PUT_half(from[i], to, i);
}
#endif

// TM vectors of results, one for each channel from `to` on; image by image they lie `step` apart. At an edge fewer
// images or channels exist: then in loops that stay loops, so that this rare path stays small.
static inline void store_turned(fv t[TURNED], __global Y_T* to, int step, int images, int channels) {
  turn_results(t);
  float results[VW * TURNED];
#pragma unroll
  for (int i = 0; i < TURNED; ++i) STORE(t[i], results + i * VW);
  if (images >= VW && channels >= TM) {
#pragma unroll
    for (int l = 0; l < VW; ++l) TYPED(store_results_, Y_T)(results + l * TURNED, to + l * step);
    return;
  }
  float edge[VW * TURNED];
#pragma unroll
  for (int i = 0; i < TURNED; ++i) STORE(t[i], edge + i * VW);
#pragma unroll 1
  for (int l = 0; l < min(VW, images); ++l)
#pragma unroll 1
    for (int i = 0; i < min(TM, channels); ++i) PUT(Y_T, edge[l * TURNED + i], to, l * step + i);
}

static inline void store_images(fv acc[TM][NV], __global Y_T* y, int pitch, Place first, int o0, int o, const Extra* e) {
#pragma unroll
  for (int j = 0; j < NV; ++j) {
    const Place p = {first.n + j * VW, first.images, first.in_image, first.pixel};
    if (p.n < p.images) {
      fv t[TURNED];
#pragma unroll
      for (int i = 0; i < TURNED; ++i)
        t[i] = i < TM ? epilogue_of_images(acc[min(i, TM - 1)][j], e, p, min(o0 + i, o - 1)) : (fv)(0.0f);
      store_turned(t, y + (p.n * p.in_image + p.pixel) * pitch + o0, p.in_image * pitch, p.images - p.n, o - o0);
    }
  }
}

static inline void store_sheaves(fv acc[TM][NV], __global Y_T* y, Place first, int o0, int o, const Extra* e) {
#pragma unroll
  for (int j = 0; j < NV; ++j) {
    const Place p = {first.n + j * VW, first.images, first.in_image, first.pixel};
    __global Y_T* to = y + ((p.n / VW * p.in_image + p.pixel) * o + o0) * VW;
#pragma unroll
    for (int i = 0; i < TM; ++i)
      if (p.n < p.images && o0 + i < o) STORE_AS(Y_T, epilogue_of_images(acc[i][j], e, p, o0 + i), to + i * VW);
  }
}

// Weight (tap, c, result) lies at w + tap * w_tap + c * w_channel + result * w_result: for the data gradient w starts at
// the last tap and w_tap is negative. `joined`: the taps of a line and their channels follow each other in both operands.
__kernel GROUP void conv_images(TENSOR(const B_T, x), TENSOR(const A_T, w), TENSOR(Y_T, y) EPILOGUE_PARAMS,
                                WINDOW_PARAMS, int images, int lines, int columns, int top, int left, int w_first,
                                int w_tap, int w_channel, int w_result, int joined, int tiles, int sheaves) {
  const Window g = WINDOW;
  const Extra extras[4] = EPILOGUE_EXTRAS;
  const int o0 = (int)get_global_id(1) * TM, sheaf = (int)get_global_id(2) * NV, size = lines * columns * g.c * VW;
  if (o0 >= g.o) return;
  int at[NV];
#pragma unroll
  for (int j = 0; j < NV; ++j) at[j] = min(j, (images - 1) / VW - sheaf) * size;
  __global const A_T* p[TM];
#pragma unroll
  for (int i = 0; i < TM; ++i) p[i] = START(w) + w_first + min(o0 + i, g.o - 1) * w_result;
  for (int t = 0; t < tiles; ++t) {
    const int pixel = (int)get_global_id(0) * tiles + t;
    if (pixel >= g.oh * g.ow) return;
    const int y0 = pixel / g.ow * g.sh - g.pt, x0 = pixel % g.ow * g.sw - g.pl;
    const Taps ry = taps_inside(y0, g.r, g.dh, g.h), rx = taps_inside(x0, g.s, g.dw, g.w);
    fv acc[TM][NV];
    tile_clear(acc);
    for (int r = ry.from; r < ry.to; ++r) {
      const int row = top + y0 + r * g.dh;
      __global const B_T* line = START(x) + sheaf * size + (row * columns + left + x0) * g.c * VW;
      for (int s = rx.from; s < rx.to; s += joined ? g.s : 1) {
        __global const B_T* b = line + s * g.dw * g.c * VW;
        int k = joined ? (rx.to - s) * g.c : g.c, offset = (r * g.s + s) * w_tap;
        do {
          fv bv[NV];
          tile_load(bv, b, at);
          tile_step(acc, p, offset, bv);
          offset += w_channel;
          b += VW;
        } while (--k > 0);
      }
    }
    const Place place = {sheaf * VW, images, g.oh * g.ow, pixel};
    if (sheaves)
      store_sheaves(acc, START(y), place, o0, g.o, extras);
    else
      store_images(acc, START(y), y_pitch, place, o0, g.o, extras);
  }
}
