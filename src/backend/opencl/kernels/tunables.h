// tunables.h -- every tuning key of the OpenCL kernels: what it is, its default, the values it may take.
//
// Kernels are right at any combination of legal values (tests sample them); which is fast is the device's affair and
// stands in devices/opencl.json. Group sizes multiply: WX * WY must not exceed what the device allows.
#pragma once
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "device/target.h"

namespace situ::opencl::kernels {

struct Tunable {
  std::string_view key;
  int64_t otherwise;  // the value when no record names the key
  std::vector<int64_t> values;
  std::string_view meaning;
};

inline const std::vector<Tunable>& tunables() {
  static const std::vector<Tunable> list = {
      {"gemm.VW", 4, {1, 2, 4, 8, 16}, "lanes of a vector in the GEMM family"},
      {"gemm.TM", 4, {1, 2, 3, 4, 5, 6, 8}, "rows of the register tile"},
      {"gemm.TALL", 0, {0, 6, 8, 10, 12}, "rows of a tile two vectors wide, tried by `situ tune`; 0: none"},
      {"gemm.NV", 2, {1, 2, 3, 4}, "vectors in a row of the register tile"},
      {"gemm.TM1", 6, {1, 2, 4, 6, 8, 10, 12}, "rows of the tile where one vector holds all columns"},
      {"gemm.WX", 1, {1, 2, 4, 8, 16}, "work-items of a group along the rows of tiles"},
      {"gemm.WY", 1, {1, 2, 4, 8}, "work-items of a group along the panels"},
      {"gemm.MAC", 0, {0, 1, 2}, "multiply-add: 0 a*b+c, 1 fma, 2 mad"},
      {"gemm.HINT", 0, {0, 1}, "1: tell Intel's compiler that the kernel is vectorised already"},
      {"gemm.ITEMS", 64, {1, 16, 64, 256, 1024, 4096}, "work-items that keep the device busy: fewer split K"},
      {"gemm.SPLIT", 256, {16, 64, 256, 1024}, "the shortest K worth a split"},
      {"gemm.WORK", 0, {0, 1024, 4096, 16384, 65536}, "multiply-adds a work-item does at least, if enough remain"},
      {"gemm.TA", 100, {100, 150, 200}, "what a transposed left operand costs, per cent of a plain one"},
      {"gemm.IMAGE", 0, {0, 1, 2}, "right operand: 0 buffer, 1 image1d_buffer, 2 image2d where its pitch fits, else 1"},
      {"gemm.SUB", 0, {0, 1}, "1: a sub-group reads a product's left operand together, where there are any"},
      {"gemm.IMAGE_A", 0, {0, 1}, "1: the left operand by an image1d_buffer, four values at a time"},
      {"dw.TM", 4, {1, 2, 3, 4, 5, 6, 8}, "rows of the weight gradient's tile"},
      {"dw.NV", 2, {1, 2, 3, 4}, "vectors in a row of the weight gradient's tile"},
      {"dw.SLAB", 256, {1, 64, 256, 512, 1024}, "KiB of x and dy that a split of the weight gradient walks"},
      {"depthwise.TM", 4, {1, 2, 4, 6, 8}, "pixels of a work-item of a depthwise convolution"},
      {"depthwise.CHUNK", 1, {1, 2, 8, 32}, "channel vectors that it walks"},
      {"recurrent.TM", 2, {1, 2, 3, 4, 6}, "sequences of a tile of a recurrent layer"},
      {"recurrent.NV", 1, {1, 2, 4}, "channel vectors that a work-item of its gradient takes together"},
      {"recurrent.TILES", 1, {1, 2, 4, 8, 16}, "tiles of a group, if enough groups remain"},
      {"attention.VW", 1, {1, 2, 4, 8, 16}, "queries or keys that a work-item of attention owns"},
      {"attention.TK", 4, {1, 2, 4, 8, 16}, "keys or queries it looks at together"},
      {"pack.CHUNK", 256, {16, 256, 1024, 4096, 16384}, "elements a work-item packs"},
      {"vector.VW", 4, {1, 2, 4, 8, 16}, "lanes of a vector in all other kernels"},
      {"vector.WX", 64, {1, 4, 16, 32, 64, 128}, "work-items of a group in all other kernels"},
      {"vector.CHUNK", 16, {4, 16, 64, 1024, 4096, 16384}, "elements a work-item walks in pointwise kernels"},
      {"reduce.CHUNK", 1024, {16, 256, 1024, 4096, 16384}, "elements a work-item reduces"},
      {"reduce.ITEMS", 256, {1, 16, 64, 256, 1024}, "work-items that keep a reduction busy: fewer cut it into parts"},
      {"reduce.WX", 1, {1, 4, 16, 64}, "work-items of a group in reductions"},
      {"columns.ITEMS",
       1024,
       {1, 4, 16, 64, 256, 1024},
       "column vectors that keep a norm in one launch busy: fewer take more"},
      {"rows.ITEMS", 1, {1, 8, 16, 32, 64, 128}, "work-items that share a row in norms, softmax and sums along rows"},
      {"rows.SUB", 0, {0, 1}, "1: sub-groups combine what they found, where there are any; 0: a tree in local memory"},
      {"update.CHUNK", 4096, {16, 256, 1024, 4096, 16384}, "elements of an optimizer step that a group does"},
      {"gather.BLOCK", 64, {1, 8, 64, 512}, "rows of the table that a work-item of its gradient owns"},
      {"half.FORM", 0, {0, 1}, "halves: 0 vload_half and vstore_half, 1 integer arithmetic on shorts"},
      {"copy.SIDE", 8, {1, 4, 8, 16, 32}, "side of the square block a work-item transposes"},
  };
  return list;
}

// The tuned value of a key, checked: a record with an impossible number is a mistake to name, not to run.
inline int64_t tuned(const device::Target& target, std::string_view key) {
  const auto& list = tunables();
  const auto it = std::find_if(list.begin(), list.end(), [&](const Tunable& t) { return t.key == key; });
  SITU_ASSERT(it != list.end(), "`{}` is no tuning key", key);
  const int64_t value = target.tuning.get(key, it->otherwise);
  if (std::find(it->values.begin(), it->values.end(), value) == it->values.end())
    fail("tuning {} = {} is not possible: use one of {}", key, value, fmt::join(it->values, ", "));
  return value;
}

}  // namespace situ::opencl::kernels
