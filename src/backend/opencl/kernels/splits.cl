// splits.cl -- y[r, c] = epilogue(sum_s part[s, r, c]), the partial sums of split-K added in a fixed order.
//
// part[S, rows, cols] is dense; s ascends, so the result does not depend on how work-items are scheduled.
// Work-item (x, y): `chunk` vectors of row y, from vector x * chunk on.
#include "tile.clh"

__kernel GROUP void sum_splits(TENSOR(const float, part), TENSOR(Y_T, y) EPILOGUE_PARAMS, int splits, int rows,
                               int cols, int chunk) {
  const Extra extras[4] = EPILOGUE_EXTRAS;
  const int row = get_global_id(1), first = get_global_id(0) * chunk;
  if (row >= rows) return;
  const int stride = rows * cols;
  for (int v = first; v < first + chunk && v * VW < cols; ++v) {
    const int col = v * VW, lanes = min(VW, cols - col);
    __global const float* p = START(part) + row * cols + col;
    fv sum = (fv)(0.0f);
    if (lanes == VW)
      for (int s = 0; s < splits; ++s) sum += LOAD(p + s * stride);
    else
      for (int s = 0; s < splits; ++s) sum += load_lanes(p + s * stride, 0, lanes);
    sum = epilogue(sum, extras, row, col, 0, lanes);
    STORE_LANES(Y_T, sum, START(y) + row * y_pitch + col, 0, lanes);
  }
}
