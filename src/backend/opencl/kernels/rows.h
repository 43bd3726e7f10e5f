// rows.h -- the grid of kernels whose rows may be shared by the work-items of a group (rows.clh).
#pragma once
#include "backend/opencl/features.h"
#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {

// How many work-items share a row of `cols` columns: as tuned, but none without a vector of its own.
inline int64_t items_of_row(const Target& target, int64_t cols) {
  int64_t items = tuned(target, "rows.ITEMS");
  while (items > 1 && items * tuned(target, "vector.VW") > 2 * cols) items /= 2;
  return items;
}

inline void define_rows(Call& call, const Target& target, int64_t items) {
  if (items == 1) return;
  call.define("ROW_ITEMS", items);
  if (tuned(target, "rows.SUB") == 0 || !has_sub_groups(target)) return;
  call.define("SUB", 1);
  call.sub_groups = true;
}

// A work-item per row, in groups of at most 16, or a group per row.
inline Call& set_rows(Call& call, const Target& target, int64_t rows, int64_t cols) {
  const int64_t items = items_of_row(target, cols);
  define_rows(call, target, items);
  return items == 1 ? set_grid(call, rows, 1, 1, std::min<int64_t>(tuned(target, "vector.WX"), 16))
                    : set_grid(call, rows * items, 1, 1, items);
}

}  // namespace situ::opencl::kernels
