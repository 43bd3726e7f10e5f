// dropout.cl -- y = x * keep where the element's random number is at least p, else 0; keep = 1 / (1 - p). In place.
//
// Philox 4x32-10 (base/philox.h): counter = (block, 0, step, micro), key = (seed, stream); block = index / 4 yields the
// words of four elements, so a mask depends on names and numbers alone, never on layout or schedule.
// A work-item makes one block: elements 4 * id .. 4 * id + 3 of the dense order; element i lies in row i / cols.
#include "common.clh"

static inline uint4 philox(uint4 counter, uint key0, uint key1) {
  for (int round = 0; round < 10; ++round) {
    const uint high0 = mul_hi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
    const uint high1 = mul_hi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
    counter = (uint4)(high1 ^ counter.y ^ key0, low1, high0 ^ counter.w ^ key1, low0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

__kernel GROUP void dropout(TENSOR(const float, x), TENSOR(const int, seed), TENSOR(const int, step),
                            TENSOR(const int, micro), TENSOR(float, y), int count, int cols, int stream, float p,
                            float keep) {
  const int block = get_global_id(0);
  if (block * 4 >= count) return;
  const uint4 words = philox((uint4)(block, 0, START(step)[0], START(micro)[0]), START(seed)[0], stream);
  uint word[4];
  vstore4(words, 0, word);
  for (int l = 0; l < 4; ++l) {
    const int i = block * 4 + l;
    if (i >= count) return;
    const int row = i / cols, col = i - row * cols;
    const float number = (float)(word[l] >> 8) * 0x1p-24f;
    const float value = START(x)[row * x_pitch + col] * keep;
    START(y)[row * y_pitch + col] = number >= p ? value : 0.0f;
  }
}
