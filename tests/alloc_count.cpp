// alloc_count.cpp -- malloc and its kin, counted while this thread wants them counted.
#include "alloc_count.h"

#include <execinfo.h>

#include <cerrno>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define SITU_COUNT_ALLOCATIONS 0
#else
#define SITU_COUNT_ALLOCATIONS 1
#endif

namespace situ::test {
namespace {

constexpr int kFrames = 24;

struct Counter {
  bool on = false;
  CountAllocations::Depth driver_depth = nullptr;
  int64_t count = 0;
  void* frames[kFrames] = {};
  int frame_count = 0;
};
thread_local Counter counter;

}  // namespace

#if SITU_COUNT_ALLOCATIONS
static void note_allocation() {
  Counter& mine = counter;
  if (!mine.on) return;
  mine.on = false;  // looking around may allocate
  if (mine.driver_depth == nullptr || mine.driver_depth() == 0)
    if (++mine.count == 1) mine.frame_count = backtrace(mine.frames, kFrames);
  mine.on = true;
}
#endif

bool can_count_allocations() { return SITU_COUNT_ALLOCATIONS != 0; }

CountAllocations::CountAllocations(Depth driver_depth) {
  void* frame = nullptr;
  backtrace(&frame, 1);  // loads what it needs now
  counter = Counter{};
  counter.driver_depth = driver_depth;
  counter.on = true;
}

CountAllocations::~CountAllocations() { counter.on = false; }

int64_t CountAllocations::count() const { return counter.count; }

std::string CountAllocations::first() const {
  const bool was_on = counter.on;
  counter.on = false;
  std::string text = counter.frame_count > 0 ? "first allocated at:\n" : "";
  if (char** lines = backtrace_symbols(counter.frames, counter.frame_count)) {
    for (int i = 0; i < counter.frame_count; ++i) text.append("  ").append(lines[i]).append("\n");
    std::free(lines);
  }
  counter.on = was_on;
  return text;
}

}  // namespace situ::test

#if SITU_COUNT_ALLOCATIONS
// Visible to shared libraries as well, so that operator new of the C++ library comes here too. Memory is glibc's own,
// so its free needs no replacement.
#define SITU_REPLACES __attribute__((visibility("default")))
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming): glibc's names
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)

SITU_REPLACES void* malloc(size_t size) {
  situ::test::note_allocation();
  return __libc_malloc(size);
}
SITU_REPLACES void* calloc(size_t count, size_t size) {
  situ::test::note_allocation();
  return __libc_calloc(count, size);
}
SITU_REPLACES void* realloc(void* old, size_t size) {
  situ::test::note_allocation();
  return __libc_realloc(old, size);
}
SITU_REPLACES void* memalign(size_t alignment, size_t size) {
  situ::test::note_allocation();
  return __libc_memalign(alignment, size);
}
SITU_REPLACES void* aligned_alloc(size_t alignment, size_t size) {
  situ::test::note_allocation();
  return __libc_memalign(alignment, size);
}
SITU_REPLACES int posix_memalign(void** result, size_t alignment, size_t size) {
  situ::test::note_allocation();
  void* memory = __libc_memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *result = memory;
  return 0;
}
}
#endif
