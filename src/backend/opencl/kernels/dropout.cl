// dropout.cl -- y = x * keep where the element's random number is at least p, else 0; keep = 1 / (1 - p). In place.
//
// Philox 4x32-10 (base/philox.h): counter = (block, step, 0), key = (seed, stream); block = index / 4 yields the words
// of four elements, so a mask depends on names and numbers alone, never on layout or schedule. Blocks count on from
// micro-batch to micro-batch. Block b of this one holds elements 4 * b .. 4 * b + 3 of the dense order; element i lies in row i / cols. A work-item makes `chunk`
// blocks.
#include "common.clh"

#ifndef X_T
#define X_T float  // or half: how x is stored
#endif
#ifndef Y_T
#define Y_T float  // likewise the result
#endif

#define LOAD4_float(p) vload4(0, p)
#define LOAD4_half(p) (float4)(AT_half(p, 0), AT_half(p, 1), AT_half(p, 2), AT_half(p, 3))
#define STORE4_float(v, p) vstore4(v, 0, p)
#define STORE4_half(v, p)              \
  {                                    \
    const float4 four = v;             \
    PUT_half(four.x, p, 0);            \
    PUT_half(four.y, p, 1);            \
    PUT_half(four.z, p, 2);            \
    PUT_half(four.w, p, 3);            \
  }

static inline uint4 philox(uint c0, uint c1, uint c2, uint c3, uint key0, uint key1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    // A 64-bit product, not mul_hi(): some drivers build that from 16-bit pieces.
    const ulong p0 = (ulong)0xD2511F53u * c0, p1 = (ulong)0xCD9E8D57u * c2;
    c0 = (uint)(p1 >> 32) ^ c1 ^ key0;
    c1 = (uint)p1;
    c2 = (uint)(p0 >> 32) ^ c3 ^ key1;
    c3 = (uint)p0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return (uint4)(c0, c1, c2, c3);
}

__kernel GROUP void dropout(TENSOR(const X_T, x), TENSOR(const int, seed), TENSOR(const int, step),
                            TENSOR(const int, micro), TENSOR(Y_T, y), int count, int cols, int chunk, int stream,
                            float p, float keep) {
  const int first = (int)get_global_id(0) * chunk, end = min((count + 3) / 4, first + chunk);
  const uint key0 = START(seed)[0], key1 = stream, now = START(step)[0];
  const ulong before = (ulong)(uint)START(micro)[0] * (uint)((count + 3) / 4);
  int row = 4 * first / cols, col = 4 * first - row * cols;
  for (int block = first; block < end; ++block) {
    const ulong number_of_block = before + (uint)block;
    const uint4 words = philox((uint)number_of_block, (uint)(number_of_block >> 32), now, 0, key0, key1);
    const float4 numbers = convert_float4(words >> 8) * 0x1p-24f;
    if (col + 4 <= cols) {
      const float4 v = TYPED(LOAD4_, X_T)(START(x) + row * x_pitch + col);
      TYPED(STORE4_, Y_T)(numbers >= (float4)(p) ? v * keep : (float4)(0.0f), START(y) + row * y_pitch + col);
      col += 4;
      continue;
    }
    float number[4];
    vstore4(numbers, 0, number);
    for (int l = 0; l < min(4, count - 4 * block); ++l, ++col) {
      if (col == cols) {
        col = 0;
        ++row;
      }
      const float v = AT(X_T, START(x), row * x_pitch + col);
      PUT(Y_T, number[l] >= p ? v * keep : 0.0f, START(y), row * y_pitch + col);
    }
  }
}
