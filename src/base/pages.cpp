#include "base/pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace situ {
namespace {

constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20;

}  // namespace

Pages make_pages(size_t bytes) {
  const bool huge = bytes >= 2 * kHugePage;  // less would leave most of a huge page unused
  const size_t size = std::max<size_t>(bytes, 1);
  void* data = nullptr;
  if (posix_memalign(&data, huge ? kHugePage : kPage, size) != 0) return nullptr;
#ifdef MADV_HUGEPAGE
  // Before the first touch, which decides; a refusal costs speed and nothing else. Whole huge pages only: what comes
  // after them may be another's.
  if (huge) (void)madvise(data, size / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  std::memset(data, 0, size);
  return Pages(static_cast<std::byte*>(data));
}

}  // namespace situ
