// process.h -- what this process uses: resident memory now and at its peak, in bytes (0 where the system does not say).
#pragma once
#include <cstdint>

namespace situ {
int64_t resident_bytes();
int64_t peak_resident_bytes();
double processor_seconds();  // that its threads have run, all together
}  // namespace situ
