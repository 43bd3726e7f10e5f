// pages.h -- memory for large arrays: zero-filled, page-aligned, on huge pages where the system grants them.
//
// A training step walks through more memory than the processor's table of pages holds: with pages of 4 KiB, a share of
// every pass over it is spent looking up addresses, in a virtual machine twice over.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <memory>

namespace situ {

struct FreePages {
  void operator()(std::byte* p) const { std::free(p); }
};
using Pages = std::unique_ptr<std::byte, FreePages>;

Pages make_pages(size_t bytes);  // null if the system refuses

}  // namespace situ
