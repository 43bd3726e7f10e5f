// spin.h -- waiting a few microseconds for another thread without asking the system, which would take as long.
#pragma once
#include "base/clock.h"

namespace situ {

inline void pause_processor() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until done() or the time is over; what done() last said.
template <typename Done>
bool spin_for(double seconds, const Done& done) {
  constexpr int kSpinsPerLook = 32;  // the clock is read once in so many turns
  const double end = now() + seconds;
  do {
    for (int i = 0; i < kSpinsPerLook; ++i) {
      if (done()) return true;
      pause_processor();
    }
  } while (now() < end);
  return done();
}

}  // namespace situ
