// dropout.cpp -- y = x / (1 - p) where the element's random number is at least p, else 0.
//
// The number is word (index % 4) of the Philox block index / 4 of the stream (base/philox.h), blocks counting on from
// micro-batch to micro-batch. Vectors run over blocks:
// one vector holds the same word of neighbouring blocks, so the ten rounds are plain 32-bit vector arithmetic. The
// words of kBlocks blocks are made in a buffer and then used in the order of the elements.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/dropout.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>

#include "backend/cpu/kernel.h"
#include "backend/cpu/simd-inl.h"
#include "backend/cpu/strided.h"
#include "base/philox.h"

#ifndef SITU_BACKEND_CPU_DROPOUT_ONCE_
#define SITU_BACKEND_CPU_DROPOUT_ONCE_
namespace situ::cpu {
namespace {
constexpr int64_t kBlocks = 128;
constexpr int64_t kElementsPerTask = 4096;  // a multiple of 4 * kBlocks

struct Dropout {
  const float* x = nullptr;
  float* y = nullptr;
  int64_t cols = 0, x_pitch = 0, y_pitch = 0, count = 0;
  const int32_t *seed = nullptr, *step = nullptr, *micro = nullptr;
  uint32_t stream = 0;
  float p = 0, scale = 1;
};
}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

using WordTag = hn::ScalableTag<uint32_t>;
using Words = hn::Vec<WordTag>;

HWY_INLINE Words words(uint32_t value) { return hn::Set(WordTag(), value); }

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE Words high_product(Words a, uint32_t b) {
  return words(static_cast<uint32_t>((uint64_t{hn::GetLane(a)} * b) >> 32));
}
#else
// The upper halves of 32 x 32 bit products: even lanes, then odd ones.
HWY_INLINE Words high_product(Words a, uint32_t b) {
  const WordTag d;
  const hn::Repartition<uint64_t, WordTag> wide;
  const Words even = hn::BitCast(d, hn::ShiftRight<32>(hn::MulEven(a, words(b))));
  const Words odd_a = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a)));
  const Words odd = hn::BitCast(d, hn::MulEven(odd_a, words(b)));  // the upper half is in place
  return hn::OddEven(odd, even);
}
#endif

// Words of blocks first .. first + kBlocks - 1, in the order of the elements.
void make_words(const Dropout& k, uint64_t first, uint32_t* to) {
  const WordTag d;
  HWY_ALIGN uint32_t parts[4][kBlocks + hn::MaxLanes(d)];
  const uint32_t seed = static_cast<uint32_t>(*k.seed);
  for (int64_t b = 0; b < kBlocks; b += lanes()) {
    const uint64_t block = first + static_cast<uint64_t>(b);
    const Words low = words(static_cast<uint32_t>(block)), high = words(static_cast<uint32_t>(block >> 32));
    Words c0 = hn::Add(low, hn::Iota(d, 0));
    Words c1 = hn::IfThenElse(hn::Lt(c0, low), hn::Add(high, words(1)), high);  // the lower word may wrap inside
    Words c2 = words(static_cast<uint32_t>(*k.step)), c3 = words(0);
    uint32_t key0 = seed, key1 = k.stream;
    for (int round = 0; round < 10; ++round) {
      const Words h0 = high_product(c0, 0xD2511F53u), l0 = hn::Mul(c0, words(0xD2511F53u));
      const Words h1 = high_product(c2, 0xCD9E8D57u), l1 = hn::Mul(c2, words(0xCD9E8D57u));
      c0 = hn::Xor(hn::Xor(h1, c1), words(key0));
      c1 = l1;
      c2 = hn::Xor(hn::Xor(h0, c3), words(key1));
      c3 = l0;
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    hn::StoreU(c0, d, parts[0] + b);
    hn::StoreU(c1, d, parts[1] + b);
    hn::StoreU(c2, d, parts[2] + b);
    hn::StoreU(c3, d, parts[3] + b);
  }
  for (int64_t b = 0; b < kBlocks; ++b)
    for (int64_t w = 0; w < 4; ++w) to[4 * b + w] = parts[w][b];
}

// Elements of one row that share the words made.
HWY_INLINE void drop(const Dropout& k, const uint32_t* word, const float* x, float* y, int64_t n) {
  const float scale = k.scale, p = k.p;
  for (int64_t i = 0; i < n; ++i) y[i] = unit_float(word[i]) >= p ? x[i] * scale : 0;
}

void drop_task(const Dropout& k, int64_t task) {
  uint32_t buffer[4 * kBlocks];
  const uint64_t before = uint64_t{static_cast<uint32_t>(*k.micro)} * static_cast<uint64_t>(ceil_div(k.count, 4));
  const int64_t last = std::min(k.count, (task + 1) * kElementsPerTask);
  for (int64_t first = task * kElementsPerTask; first < last; first += 4 * kBlocks) {
    make_words(k, before + static_cast<uint64_t>(first / 4), buffer);
    const int64_t end = std::min(last, first + 4 * kBlocks);
    for (int64_t i = first; i < end;) {
      const int64_t row = i / k.cols, col = i % k.cols, n = std::min(k.cols - col, end - i);
      drop(k, buffer + (i - first), k.x + row * k.x_pitch + col, k.y + row * k.y_pitch + col, n);
      i += n;
    }
  }
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(drop_task);

Work bind_dropout(const Call& call) {
  const Operand &x = call.in[0], &y = call.out[0];
  Dropout k;
  k.x = x.f32();
  k.y = y.f32();
  k.count = y.type.count();
  const bool flat = x.pitch == x.cols() && y.pitch == y.cols();
  k.cols = flat ? k.count : y.cols();
  k.x_pitch = x.pitch;
  k.y_pitch = y.pitch;
  k.seed = call.in[1].i32();
  k.step = call.in[2].i32();
  k.micro = call.in[3].i32();
  k.stream = static_cast<uint32_t>(call.attrs.integer("stream"));
  k.p = static_cast<float>(call.attrs.number("p"));
  k.scale = static_cast<float>(1 / (1 - call.attrs.number("p")));
  const auto run = &HWY_DYNAMIC_DISPATCH(drop_task);
  return {ceil_div(k.count, kElementsPerTask), [k, run](int64_t task) { run(k, task); }};
}

}  // namespace

namespace kernels {
KernelList dropout() {
  static constexpr Kernel kernels[] = {{"dropout", bind_dropout}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
