// peak.cpp -- what this machine can do at best: FMA peak (registers only) and triad bandwidth, on one thread and on
// all, and how soon one core sees what another has written. Prints one JSON object; benchmarks print it beside their
// own figures, since a time alone means nothing.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/peak.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"

HWY_BEFORE_NAMESPACE();
namespace situ::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Ten chains hide the latency of two FMA units. They begin with different values that the compiler cannot know: it
// would compute equal chains once. Returns the flops done.
double fma_chains(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.999f), b = hn::Set(d, 0.001f);
  volatile float start = 0.5f;
  auto c0 = hn::Set(d, start), c1 = hn::Set(d, start), c2 = hn::Set(d, start), c3 = hn::Set(d, start),
       c4 = hn::Set(d, start), c5 = hn::Set(d, start), c6 = hn::Set(d, start), c7 = hn::Set(d, start),
       c8 = hn::Set(d, start), c9 = hn::Set(d, start);
  for (int64_t i = 0; i < rounds; ++i) {
    c0 = hn::MulAdd(c0, a, b);
    c1 = hn::MulAdd(c1, a, b);
    c2 = hn::MulAdd(c2, a, b);
    c3 = hn::MulAdd(c3, a, b);
    c4 = hn::MulAdd(c4, a, b);
    c5 = hn::MulAdd(c5, a, b);
    c6 = hn::MulAdd(c6, a, b);
    c7 = hn::MulAdd(c7, a, b);
    c8 = hn::MulAdd(c8, a, b);
    c9 = hn::MulAdd(c9, a, b);
  }
  const auto sum = hn::Add(hn::Add(hn::Add(c0, c1), hn::Add(c2, c3)),
                           hn::Add(hn::Add(c4, c5), hn::Add(hn::Add(c6, c7), hn::Add(c8, c9))));
  *sink = hn::GetLane(sum);
  return 20.0 * static_cast<double>(rounds) * static_cast<double>(hn::Lanes(d));
}

void triad(const float* a, const float* b, float* c, int64_t n) {
  const hn::ScalableTag<float> d;
  const auto s = hn::Set(d, 3.0f);
  for (int64_t i = 0; i + static_cast<int64_t>(hn::Lanes(d)) <= n; i += static_cast<int64_t>(hn::Lanes(d)))
    hn::StoreU(hn::MulAdd(s, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, c + i);
}

}  // namespace situ::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::bench {
namespace {

HWY_EXPORT(fma_chains);
HWY_EXPORT(triad);

double chains(int64_t rounds, float* sink) { return HWY_DYNAMIC_DISPATCH(fma_chains)(rounds, sink); }

void add_scaled(const float* a, const float* b, float* c, int64_t n) { HWY_DYNAMIC_DISPATCH(triad)(a, b, c, n); }

double best_rate(ThreadPool& pool, int threads, double work, const std::function<void(int64_t)>& task) {
  double best = 0;
  for (int i = 0; i < 15; ++i) {
    const double start = now();
    pool.run(threads, task);
    best = std::max(best, work / (now() - start));
  }
  return best;
}

// GFLOP/s of FMA from registers.
double fma_peak(ThreadPool& pool, int threads) {
  constexpr int64_t kRounds = 4'000'000;
  std::vector<float> sinks(static_cast<size_t>(threads) * 16);
  const double flops = chains(1, sinks.data()) * kRounds * threads;
  return 1e-9 *
         best_rate(pool, threads, flops, [&](int64_t t) { chains(kRounds, &sinks[static_cast<size_t>(t) * 16]); });
}

// GB/s of c = 3 a + b from memory.
double triad_bandwidth(ThreadPool& pool, int threads) {
  constexpr int64_t kElements = 8 << 20;
  std::vector<float> a(kElements, 1), b(kElements, 2), c(kElements, 0);
  return 1e-9 * best_rate(pool, threads, 12.0 * kElements, [&](int64_t t) {
           const int64_t part = kElements / threads, at = t * part;
           add_scaled(a.data() + at, b.data() + at, c.data() + at, part);
         });
}

// Nanoseconds until a core sees what another has written. On a shared machine it may change by the minute, as virtual
// cores are moved to neighbours or apart, and with it whatever cores hand to each other; peak and triad do not show it.
double handoff_ns(ThreadPool& pool) {
  constexpr int64_t kTurns = 20'000;
  alignas(64) std::atomic<int64_t> turn{0};
  double best = 1;
  for (int i = 0; i < 5 && pool.threads() > 1; ++i) {
    turn = 0;
    const double start = now();
    pool.run(2, [&](int64_t side) {
      for (int64_t t = side; t < 2 * kTurns; t += 2) {
        while (turn.load(std::memory_order_acquire) != t) continue;
        turn.store(t + 1, std::memory_order_release);
      }
    });
    best = std::min(best, now() - start);
  }
  return pool.threads() > 1 ? 1e9 * best / (2 * kTurns) : 0;
}

}  // namespace
}  // namespace situ::bench

int main() {
  situ::ThreadPool pool(0);
  const int threads = pool.threads();
  std::printf(
      "{\"threads\": %d, \"fma_gflops_1\": %.1f, \"fma_gflops\": %.1f, \"triad_gbs_1\": %.1f, \"triad_gbs\": %.1f, "
      "\"handoff_ns\": %.0f}\n",
      threads, situ::bench::fma_peak(pool, 1), situ::bench::fma_peak(pool, threads),
      situ::bench::triad_bandwidth(pool, 1), situ::bench::triad_bandwidth(pool, threads),
      situ::bench::handoff_ns(pool));
  return 0;
}
#endif
