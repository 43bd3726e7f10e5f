// clock.h -- seconds on the monotonic clock.
#pragma once
#include <chrono>

namespace situ {
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
}  // namespace situ
