// gemm.cl -- y = epilogue(a' b'), the register-tiled matrix product.
//
//   y[m, n] = sum_k a[m, k] * b[k, n]           TA: a is stored [K, M], otherwise [M, K]
//
//   B in panels [N / TN][K][TN]: b_step = TN, b_panel = K * TN, last = any;  in place: b_step = pitch, b_panel = TN,
//   last = N - VW (tile.clh). Work-item (x, panel, z): `tiles` tiles of TM rows one below the other, so that the panel
//   stays in the cache. Axis z counts parts, each with a y of its own, y_batch elements apart: splits of K (z sums k from
//   z * k_step on; sum_splits adds them), or the products of a batch (a and b of z lie z * a_batch and z * b_batch on).
#include "sub_groups.clh"
#include "tile.clh"

#ifndef TA
#define TA 0  // 1: a is transposed in memory
#endif
#ifndef K_BLOCK
#define K_BLOCK 512  // terms of a sum that are added up before it joins the others: rounding errors grow with both counts
#endif

static inline void multiply(fv acc[TM][NV], A_PARAM a, int a_pitch, int m0, int m, B_PARAM b, int b_step,
                            const int at[NV], int k0, int k1) {
  APlace p[TM];
#pragma unroll
  for (int i = 0; i < TM; ++i) p[i] = a + min(m0 + i, m - 1) * (TA ? 1 : a_pitch);
#if SUB
  const int lanes = get_sub_group_size(), lane = get_sub_group_local_id();
  for (int k = k0; k < k1; k += lanes) {
    float own[TM];
#pragma unroll
    for (int i = 0; i < TM; ++i) own[i] = k + lane < k1 ? AT(A_T, p[i], (k + lane) * (TA ? a_pitch : 1)) : 0.0f;
    for (int l = 0; l < min(lanes, k1 - k); ++l) {
      fv bv[NV];
      tile_load(bv, B_AT(b), at);
#pragma unroll
      for (int i = 0; i < TM; ++i) {
        const fv value = (fv)(sub_group_broadcast(own[i], l));
#pragma unroll
        for (int j = 0; j < NV; ++j) acc[i][j] = MAC(value, bv[j], acc[i][j]);
      }
      b += b_step;
    }
  }
#elif A_IMAGE
  for (int k = k0; k < k1; k += 4) {
    float4 four[TM];
#pragma unroll
    for (int i = 0; i < TM; ++i) four[i] = A_TEXEL(p[i] + k);
    tile_four(acc, four, B_AT(b), b_step, at);
    b += 4 * b_step;
  }
#else
  for (int k = k0; k < k1; ++k) {
    fv bv[NV];
    tile_load(bv, B_AT(b), at);
    tile_step(acc, p, TA ? k * a_pitch : k, bv);
    b += b_step;
  }
#endif
}

__kernel GROUP void gemm(A_TENSOR(a), B_TENSOR(b), TENSOR(Y_T, y) EPILOGUE_PARAMS, int m, int n, int k, int b_step,
                         int b_panel, int last, int k_split, int k_step, int a_batch, int b_batch, int y_batch,
                         int tiles) {
#if SUB  // neighbours take neighbouring panels of the same rows; those beyond the last one help to read a
  const int own_panel = get_global_id(0), panel = min(own_panel, (n - 1) / TN), down = get_global_id(1);
  const int stored = own_panel == panel ? m : 0;  // rows before this one
#else
  const int panel = get_global_id(1), down = get_global_id(0), stored = m;
  if (panel * TN >= n) return;
#endif
  const int part = get_global_id(2), c0 = panel * TN;
  const Extra extras[4] = EPILOGUE_EXTRAS;
  const int k0 = part * k_step, k1 = min(k, k0 + k_split);
  const APlace a_start = A_START(a) + part * a_batch;
  const BPlace b_start = B_START(b) + part * b_batch + panel * b_panel + k0 * b_step;
  int at[NV];
  place_vectors(at, c0, last);
  for (int t = 0; t < tiles; ++t) {
    const int m0 = (down * tiles + t) * TM;
    if (m0 >= m) return;
    fv acc[TM][NV];
    tile_clear(acc);
    for (int begin = k0; begin < k1; begin += K_BLOCK) {
      fv sums[TM][NV];
      tile_clear(sums);
      multiply(sums, A_AT(a_start), a_pitch, m0, m, B_AT(b_start + (begin - k0) * b_step), b_step, at, begin,
               min(k1, begin + K_BLOCK));
      tile_add(acc, sums);
    }
    int row[TM];
#pragma unroll
    for (int i = 0; i < TM; ++i) row[i] = m0 + i < stored ? m0 + i : -1;
    tile_store(acc, START(y) + part * y_batch, y_pitch, row, 0, c0, n, at, extras);
  }
}
