// pages_test.cpp -- memory for slabs: zero, aligned, of any size.
#include "base/pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace situ {
namespace {

TEST(Pages, AreZeroAndAlignedWhateverTheirSize) {
  constexpr size_t kMiB = 1 << 20;
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{4097}, 3 * kMiB, 4 * kMiB, 5 * kMiB + 13}) {
    const Pages pages = make_pages(bytes);
    ASSERT_TRUE(pages) << bytes;
    const auto address = reinterpret_cast<uintptr_t>(pages.get());
    EXPECT_EQ(address % (bytes >= 4 * kMiB ? 2 * kMiB : 4096), 0u) << bytes;
    EXPECT_TRUE(std::all_of(pages.get(), pages.get() + bytes, [](std::byte b) { return b == std::byte{0}; })) << bytes;
    std::fill(pages.get(), pages.get() + bytes, std::byte{1});  // all of it is ours
  }
}

TEST(Pages, AreRefusedWithoutAnError) { EXPECT_FALSE(make_pages(size_t{1} << 60)); }

}  // namespace
}  // namespace situ
