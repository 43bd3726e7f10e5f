// alloc_count.h -- how often a stretch of situ's own code asks for memory.
//
//     const CountAllocations counted(icd.depth());   // calls inside the OpenCL driver are the driver's, not situ's
//     .. steps ..
//     EXPECT_EQ(counted.count(), 0) << counted.first();
//
// Counts malloc, calloc, realloc and the aligned kinds, operator new through them, on this thread alone. The test
// program replaces those functions by ones that count and forward to glibc's.
#pragma once
#include <cstdint>
#include <string>

namespace situ::test {

// False in builds with sanitizers, which bring an allocator of their own: counts stay 0 there.
bool can_count_allocations();

class CountAllocations {
 public:
  using Depth = int (*)();
  explicit CountAllocations(Depth driver_depth = nullptr);  // one at a time per thread
  ~CountAllocations();
  CountAllocations(const CountAllocations&) = delete;
  CountAllocations& operator=(const CountAllocations&) = delete;

  int64_t count() const;
  std::string first() const;  // where the first one was asked for: a stack of addresses for addr2line
};

}  // namespace situ::test
