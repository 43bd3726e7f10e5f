// winograd.cl -- 3x3 convolutions with stride 1 as products of transformed tiles: F(OUT x OUT, 3 x 3).
//
//   y tile = A^T [ (G w G^T) . (B^T x B) ] A            "." point by point, summed over channels: a product per point
//   dw     = G^T [ sum over tiles (B^T x B) . (A dy A^T) ] G
//
//   winograd_weights  u[point, panel, k, tn]  = G w G^T of element (tap, k, c), as panels (pack.cl): w[tap, k, c]; or
//                     turned for the data gradient w[8 - tap, c, k]; or panels already, [panel, tap, k, tn]
//   winograd_input    v[point, tile, c]      = B^T x B; a tile is IN x IN pixels, OUT apart, zeros outside the image
//   winograd_output   y                      = epilogue(A^T m A) of m[point, tile, o]
//   winograd_small    y                      = all of it, BLOCK tiles at a time, which stay in the nearest cache
//   winograd_dy       e[point, tile, o]      = A dy A^T; pixels beyond the image are zeros
//   winograd_dw       dw[r, s, c, o]         = G^T m G of m[point, c, o]
//
// A point's matrix is a plane: dense, the next one a pitch on. Between the transforms stand batched products
// (gemm.cl), one per point. OUT = 4 multiplies a quarter as often as the direct sum,
// OUT = 2 four ninths; both round more than it does. The points are 0, 1, -1 and infinity for OUT = 2; for OUT = 4 they
// are 0, 3/4, -3/4, 3/2, -3/2 and infinity: exact in binary, and a quarter of the error of the usual 1, -1, 2, -2.
// A work-item walks `chunk` units, each a channel vector of a tile; `whole`: of whole tiles (common.clh).
#define NV 1
#include "tile.clh"
#include "window.clh"

#ifndef OUT
#define OUT 4  // outputs of a tile along an axis: 2 or 4
#endif
#define IN (OUT + 2)
#ifndef CHANNELS
#define CHANNELS 0  // of the images that winograd_small reads, a multiple of VW; 0: it is not there
#endif
#define BLOCK 8  // tiles that winograd_small takes together

#ifndef NEAR
#define NEAR 3  // quarters: the points of OUT = 4 beside 0 and infinity
#define FAR 6
#endif
// OUT = 4: the points +-P and +-Q, and the products of their distances from the others.
#define P (NEAR * 0.25f)
#define Q (FAR * 0.25f)
#define PP (P * P)
#define QQ (Q * Q)
#define AT_0 (PP * QQ)
#define AT_P (2 * PP * (PP - QQ))
#define AT_Q (2 * QQ * (QQ - PP))

// --- transforms along one axis --------------------------------------------------------------------------------------
static inline void input_line(fv y[IN], const fv x[IN]) {  // B^T x
#if OUT == 4
  const fv near = x[4] - QQ * x[2], near_odd = P * (x[3] - QQ * x[1]);
  const fv far = x[4] - PP * x[2], far_odd = Q * (x[3] - PP * x[1]);
  y[0] = AT_0 * x[0] - (PP + QQ) * x[2] + x[4];
  y[1] = near + near_odd;
  y[2] = near - near_odd;
  y[3] = far + far_odd;
  y[4] = far - far_odd;
  y[5] = AT_0 * x[1] - (PP + QQ) * x[3] + x[5];
#else
  y[0] = x[0] - x[2];
  y[1] = x[1] + x[2];
  y[2] = x[2] - x[1];
  y[3] = x[1] - x[3];
#endif
}

static inline void weight_line(fv y[IN], const fv w[3]) {  // G w
#if OUT == 4
  const fv near = (w[0] + PP * w[2]) * (1 / AT_P), near_odd = w[1] * (P / AT_P);
  const fv far = (w[0] + QQ * w[2]) * (1 / AT_Q), far_odd = w[1] * (Q / AT_Q);
  y[0] = w[0] * (1 / AT_0);
  y[1] = near + near_odd;
  y[2] = near - near_odd;
  y[3] = far + far_odd;
  y[4] = far - far_odd;
  y[5] = w[2];
#else
  const fv even = 0.5f * (w[0] + w[2]), odd = 0.5f * w[1];
  y[0] = w[0];
  y[1] = even + odd;
  y[2] = even - odd;
  y[3] = w[2];
#endif
}

static inline void output_line(fv y[OUT], const fv m[IN]) {  // A^T m
#if OUT == 4
  const fv near = m[1] + m[2], near_odd = P * (m[1] - m[2]), far = m[3] + m[4], far_odd = Q * (m[3] - m[4]);
  y[0] = m[0] + near + far;
  y[1] = near_odd + far_odd;
  y[2] = PP * near + QQ * far;
  y[3] = PP * near_odd + QQ * far_odd + m[5];
#else
  y[0] = m[0] + m[1] + m[2];
  y[1] = m[1] - m[2] - m[3];
#endif
}

static inline void dy_line(fv e[IN], const fv y[OUT]) {  // A y
#if OUT == 4
  const fv near = y[0] + PP * y[2], near_odd = P * (y[1] + PP * y[3]);
  const fv far = y[0] + QQ * y[2], far_odd = Q * (y[1] + QQ * y[3]);
  e[0] = y[0];
  e[1] = near + near_odd;
  e[2] = near - near_odd;
  e[3] = far + far_odd;
  e[4] = far - far_odd;
  e[5] = y[3];
#else
  e[0] = y[0];
  e[1] = y[0] + y[1];
  e[2] = y[0] - y[1];
  e[3] = -y[1];
#endif
}

static inline void dw_line(fv w[3], const fv m[IN]) {  // G^T m
#if OUT == 4
  const fv near = m[1] + m[2], far = m[3] + m[4];
  w[0] = m[0] * (1 / AT_0) + near * (1 / AT_P) + far * (1 / AT_Q);
  w[1] = (m[1] - m[2]) * (P / AT_P) + (m[3] - m[4]) * (Q / AT_Q);
  w[2] = near * (PP / AT_P) + far * (QQ / AT_Q) + m[5];
#else
  const fv even = 0.5f * (m[1] + m[2]);
  w[0] = m[0] + even;
  w[1] = 0.5f * (m[1] - m[2]);
  w[2] = even + m[3];
#endif
}

// One transform down the columns and along the rows of a FROM x FROM square: to[TO][TO].
#define SQUARE(name, line, TO, FROM)                                               \
  static inline void name(fv to[TO][TO], fv from[FROM][FROM]) {                    \
    fv half_done[TO][FROM];                                                        \
    _Pragma("unroll") for (int j = 0; j < FROM; ++j) {                             \
      fv column[FROM], result[TO];                                                 \
      _Pragma("unroll") for (int i = 0; i < FROM; ++i) column[i] = from[i][j];     \
      line(result, column);                                                        \
      _Pragma("unroll") for (int i = 0; i < TO; ++i) half_done[i][j] = result[i];  \
    }                                                                              \
    _Pragma("unroll") for (int i = 0; i < TO; ++i) line(to[i], half_done[i]);      \
  }

SQUARE(transform_input, input_line, IN, IN)
SQUARE(transform_weights, weight_line, IN, 3)
SQUARE(transform_output, output_line, OUT, IN)
SQUARE(transform_dy, dy_line, IN, OUT)
SQUARE(transform_dw, dw_line, 3, IN)

// --- kernels --------------------------------------------------------------------------------------------------------
// Columns c.. of a row of tap t's matrix, of which `left` are there; beyond them zeros.
static inline fv weights_at(__global const float* w, int pitch, int t, int row, int k, int c, int left) {
  __global const float* from = w + (t * k + row) * pitch + c;
  return VW <= left ? LOAD(from) : load_lanes(from, 0, left);
}
static inline fv turned_weights_at(__global const float* w, int pitch, int t, int row, int n, int c, int left) {
  __global const float* from = w + ((8 - t) * n + c) * pitch + row;
  float lanes[VW];
#pragma unroll
  for (int l = 0; l < VW; ++l) lanes[l] = l < left ? from[l * pitch] : 0.0f;
  return LOAD(lanes);
}

// panel_step: elements from a panel to the next, as w holds them.
__kernel GROUP void winograd_weights(TENSOR(const float, w), TENSOR(float, u), int k, int n, int tn, int chunk,
                                     int panel_step, int turned) {
  const int panel = get_global_id(1), k0 = (int)get_global_id(0) * chunk, k1 = min(k, k0 + chunk);
  __global const float* from = START(w) + panel * panel_step;
  for (int row = k0; row < k1; ++row) {
    for (int c = 0; c < tn; c += VW) {
      const int left = n - panel * tn - c;
      fv square[3][3], to[IN][IN];
#pragma unroll
      for (int t = 0; t < 9; ++t)
        square[t / 3][t % 3] = turned ? turned_weights_at(from, w_pitch, t, row, n, c, left)
                                      : weights_at(from, w_pitch, t, row, k, c, left);
      transform_weights(to, square);
#pragma unroll
      for (int i = 0; i < IN * IN; ++i)
        STORE(to[i / IN][i % IN], START(u) + i * u_pitch + (panel * k + row) * tn + c);
    }
  }
}

// Tiles of an image lie in tiles_h rows of tiles_w; (pt, pl) is the padding before the first one.
typedef struct {
  int n, y, x;  // image; first pixel of the tile, which may lie outside
} Tile;

static inline Tile tile_at(int tile, int tiles_h, int tiles_w, int top, int left) {
  const Pixel q = pixel_at(tile, tiles_h, tiles_w);
  const Tile t = {q.n, q.y * OUT - top, q.x * OUT - left};
  return t;
}

// Stores a square of results, one point after the other, `step` elements apart.
static inline void store_points(fv square[IN][IN], __global float* to, int step, int vector, int cols, int whole) {
#pragma unroll
  for (int i = 0; i < IN * IN; ++i) store_vector(square[i / IN][i % IN], to + i * step, vector, cols, whole);
}

// The points of the tile whose first pixel is at `from`.
static inline void input_points(fv points[IN][IN], __global const A_T* from, int pitch, __global const A_T* zeros,
                                Tile t, int h, int w) {
  const int inside = t.y >= 0 && t.y + IN <= h && t.x >= 0 && t.x + IN <= w;
  fv pixels[IN][IN];
#pragma unroll
  for (int i = 0; i < IN; ++i)
#pragma unroll
    for (int j = 0; j < IN; ++j) {
      const int there = inside || ((uint)(t.y + i) < (uint)h && (uint)(t.x + j) < (uint)w);
      pixels[i][j] = LOAD_AS(A_T, there ? from + (i * w + j) * pitch : zeros);
    }
  transform_input(points, pixels);
}

__kernel GROUP void winograd_input(TENSOR(const A_T, x), TENSOR(float, v), int h, int w, int c, int tiles_h,
                                   int tiles_w, int top, int left, int units, int chunk, int whole) {
  const int first = (int)get_global_id(0) * chunk, last = min(units, first + chunk);
  for (int unit = first; unit < last; ++unit) {
    const int tile = unit / VECTORS(c), vector = unit - tile * VECTORS(c);
    const Tile t = tile_at(tile, tiles_h, tiles_w, top, left);
    __global const A_T* from = START(x) + ((t.n * h + t.y) * w + t.x) * x_pitch + vector_start(vector, c);
    fv points[IN][IN];
    input_points(points, from, x_pitch, x_slab, t, h, w);
    store_points(points, START(v) + tile * c, v_pitch, vector, c, whole);
  }
}

__kernel GROUP void winograd_output(TENSOR(const float, m), TENSOR(Y_T, y) EPILOGUE_PARAMS, int h, int w, int o,
                                    int tiles_h, int tiles_w, int units, int chunk, int whole) {
  const Extra extras[4] = EPILOGUE_EXTRAS;
  const int first = (int)get_global_id(0) * chunk, last = min(units, first + chunk);
  for (int unit = first; unit < last; ++unit) {
    const int tile = unit / VECTORS(o), vector = unit - tile * VECTORS(o), c = vector_start(vector, o);
    const Tile t = tile_at(tile, tiles_h, tiles_w, 0, 0);
    fv points[IN][IN], pixels[OUT][OUT];
#pragma unroll
    for (int i = 0; i < IN * IN; ++i) points[i / IN][i % IN] = LOAD(START(m) + i * m_pitch + tile * o + c);
    transform_output(pixels, points);
#pragma unroll
    for (int i = 0; i < OUT; ++i)
#pragma unroll
      for (int j = 0; j < OUT; ++j) {
        if (t.y + i >= h || t.x + j >= w) continue;
        const int row = (t.n * h + t.y + i) * w + t.x + j;
        STORE_VECTOR(Y_T, epilogue(pixels[i][j], extras, row, c, 0, VW), START(y) + row * y_pitch, vector, o, whole);
      }
  }
}

#if CHANNELS
// Few channels: transforms and products of a block of tiles without a way through memory. u as winograd_weights gives it;
// o is a multiple of VW, `cols` that of its panels.
__kernel GROUP void winograd_small(TENSOR(const A_T, x), TENSOR(const float, u), TENSOR(Y_T, y) EPILOGUE_PARAMS,
                                   int h, int w, int o, int cols, int out_h, int out_w, int tiles_h, int tiles_w,
                                   int top, int left, int tiles, int blocks) {
  const Extra extras[4] = EPILOGUE_EXTRAS;
  float v[IN * IN][BLOCK][CHANNELS];
  fv m[BLOCK][IN * IN];
  for (int b = 0; b < blocks; ++b) {
    const int first = ((int)get_global_id(0) * blocks + b) * BLOCK;
    if (first >= tiles) return;
    for (int i = 0; i < BLOCK; ++i) {
      const Tile t = tile_at(min(first + i, tiles - 1), tiles_h, tiles_w, top, left);
      for (int c = 0; c < CHANNELS; c += VW) {
        fv points[IN][IN];
        input_points(points, START(x) + ((t.n * h + t.y) * w + t.x) * x_pitch + c, x_pitch, x_slab, t, h, w);
#pragma unroll
        for (int p = 0; p < IN * IN; ++p) STORE(points[p / IN][p % IN], v[p][i] + c);
      }
    }
    for (int c0 = 0; c0 < o; c0 += VW) {
      for (int p = 0; p < IN * IN; ++p) {
        __global const float* from = START(u) + p * u_pitch + c0 / cols * CHANNELS * cols + c0 % cols;
        fv acc[BLOCK];
#pragma unroll
        for (int i = 0; i < BLOCK; ++i) acc[i] = (fv)(0.0f);
#pragma unroll 4
        for (int c = 0; c < CHANNELS; ++c) {
          const fv weights = LOAD(from + c * cols);
#pragma unroll
          for (int i = 0; i < BLOCK; ++i) acc[i] = MAC((fv)(v[p][i][c]), weights, acc[i]);
        }
#pragma unroll
        for (int i = 0; i < BLOCK; ++i) m[i][p] = acc[i];
      }
      for (int i = 0; i < BLOCK && first + i < tiles; ++i) {
        const Tile t = tile_at(first + i, tiles_h, tiles_w, 0, 0);
        fv points[IN][IN], pixels[OUT][OUT];
#pragma unroll
        for (int p = 0; p < IN * IN; ++p) points[p / IN][p % IN] = m[i][p];
        transform_output(pixels, points);
#pragma unroll
        for (int j = 0; j < OUT * OUT; ++j) {
          if (t.y + j / OUT >= out_h || t.x + j % OUT >= out_w) continue;
          const int row = (t.n * out_h + t.y + j / OUT) * out_w + t.x + j % OUT;
          STORE_AS(Y_T, epilogue(pixels[j / OUT][j % OUT], extras, row, c0, 0, VW), START(y) + row * y_pitch + c0);
        }
      }
    }
  }
}
#endif

__kernel GROUP void winograd_dy(TENSOR(const A_T, dy), TENSOR(float, e), int h, int w, int o, int tiles_h, int tiles_w,
                                int units, int chunk, int whole) {
  const int first = (int)get_global_id(0) * chunk, last = min(units, first + chunk);
  for (int unit = first; unit < last; ++unit) {
    const int tile = unit / VECTORS(o), vector = unit - tile * VECTORS(o);
    const Tile t = tile_at(tile, tiles_h, tiles_w, 0, 0);
    __global const A_T* from = START(dy) + ((t.n * h + t.y) * w + t.x) * dy_pitch + vector_start(vector, o);
    fv pixels[OUT][OUT], points[IN][IN];
#pragma unroll
    for (int i = 0; i < OUT; ++i)
#pragma unroll
      for (int j = 0; j < OUT; ++j)
        pixels[i][j] = LOAD_AS(A_T, t.y + i < h && t.x + j < w ? from + (i * w + j) * dy_pitch : dy_slab);
    transform_dy(points, pixels);
    store_points(points, START(e) + tile * o, e_pitch, vector, o, whole);
  }
}

__kernel GROUP void winograd_dw(TENSOR(const float, m), TENSOR(float, y), int c, int o, int units, int chunk, int whole) {
  const int first = (int)get_global_id(0) * chunk, last = min(units, first + chunk);
  for (int unit = first; unit < last; ++unit) {
    const int channel = unit / VECTORS(o), vector = unit - channel * VECTORS(o);
    fv points[IN][IN], taps[3][3];
#pragma unroll
    for (int i = 0; i < IN * IN; ++i)
      points[i / IN][i % IN] = LOAD(START(m) + i * m_pitch + channel * o + vector_start(vector, o));
    transform_dw(taps, points);
#pragma unroll
    for (int t = 0; t < 9; ++t)
      store_vector(taps[t / 3][t % 3], START(y) + (t * c + channel) * y_pitch, vector, o, whole);
  }
}
