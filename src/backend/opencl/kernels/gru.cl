// gru.cl -- a GRU layer and its gradient, all time steps in one launch.
//
//   gru       u = h_{t-1} w + b;  r, z = sigmoid(zx + u);  n = tanh(zx_n + r u_n);  h = (1 - z) n + z h
//   gru_grad  dh = dh_t + carry + dzh_{t+1} w^T;  dzx and dzh from the gates;  carry = dh z
// The carry waits in the second third of dzx's next row, where its owner will overwrite it.
#include "recurrent.clh"

#ifndef HAS_DGATES
#define HAS_DGATES 0  // 1: a gradient arrived at the gates
#endif

__kernel GROUP void gru(TENSOR(const float, zx), TENSOR(const float, w), TENSOR(const float, b), TENSOR(float, h),
                        TENSOR(float, gates), int batch, int time, int width, int reverse, int tiles) {
  const int first = get_group_id(0) * tiles * TM, end = min(batch, first + tiles * TM), back = reverse ? 1 : -1;
  for (int step = 0; step < time; ++step) {
    const int t = reverse ? time - 1 - step : step;
    for (int vector = get_local_id(0); vector < VECTORS(width); vector += WX) {
      const int j = vector_start(vector, width);
      __global const float* bias = START(b) + j;
      __global const float* panel = START(w) + vector * width * 3 * VW;
      const int part[3] = {0, 1 * VW, 2 * VW};
      for (int n0 = first; n0 < end; n0 += TM) {
        fv u[TM][3];
        RECURRENT_SUMS(step == 0, 3, u, START(h), h_pitch, panel, 3 * VW, part, n0, batch, time, t + back, width)
#pragma unroll
        for (int r = 0; r < TM; ++r) {
          if (n0 + r >= end) break;
          const int row = (n0 + r) * time + t;
          __global const float* in = START(zx) + row * zx_pitch + j;
          __global float* gate = START(gates) + row * gates_pitch;
          const fv reset = sigmoid_of(LOAD(in) + (u[r][0] + LOAD(bias)));
          const fv update = sigmoid_of(LOAD(in + width) + (u[r][1] + LOAD(bias + width)));
          const fv inner = u[r][2] + LOAD(bias + 2 * width);
          const fv fresh = tanh_of(LOAD(in + 2 * width) + reset * inner);
          fv state = ((fv)(1.0f) - update) * fresh;
          if (step > 0) state += update * LOAD(START(h) + (row + back) * h_pitch + j);
          store_vector(reset, gate, vector, width, 0);
          store_vector(update, gate + width, vector, width, 0);
          store_vector(fresh, gate + 2 * width, vector, width, 0);
          store_vector(inner, gate + 3 * width, vector, width, 0);
          store_vector(state, START(h) + row * h_pitch, vector, width, 0);
        }
      }
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
  }
}

__kernel GROUP void gru_grad(TENSOR(const float, h), TENSOR(const float, gates), TENSOR(const float, w),
                             TENSOR(const float, dh),
#if HAS_DGATES
                             TENSOR(const float, dgates),
#endif
                             TENSOR(float, dzx), TENSOR(float, dzh), int batch, int time, int width, int reverse,
                             int tiles) {
  const int first = get_group_id(0) * tiles * TM, end = min(batch, first + tiles * TM), back = reverse ? 1 : -1;
  for (int step = time - 1; step >= 0; --step) {
    const int t = reverse ? time - 1 - step : step, last = step == time - 1;
    for (int v0 = get_local_id(0) * NV; v0 < VECTORS(width); v0 += WX * NV) {
      __global const float* panel = START(w) + v0 * width * 3 * VW;
      int part[NV];
      find_panels(part, v0, width, 3 * width);
      for (int n0 = first; n0 < end; n0 += TM) {
        fv sums[TM][NV];
        RECURRENT_SUMS(last, NV, sums, START(dzh), dzh_pitch, panel, VW, part, n0, batch, time, t - back, 3 * width)
#pragma unroll
        for (int r = 0; r < TM; ++r) {
          if (n0 + r >= end) break;
#pragma unroll
          for (int p = 0; p < NV; ++p) {
            const int vector = v0 + p;
            if (vector >= VECTORS(width)) break;
            const int j = vector_start(vector, width);
            const int row = (n0 + r) * time + t;
            __global const float* gate = START(gates) + row * gates_pitch + j;
            __global float *to_x = START(dzx) + row * dzx_pitch, *to_h = START(dzh) + row * dzh_pitch;
            const fv reset = LOAD(gate), update = LOAD(gate + width), fresh = LOAD(gate + 2 * width);
            fv dh_t = LOAD(START(dh) + row * dh_pitch + j) + sums[r][p], before = (fv)(0.0f);
            if (!last) dh_t += load_own(to_x + width, vector, width);
            if (step > 0) before = LOAD(START(h) + (row + back) * h_pitch + j);
            fv dm = dh_t * ((fv)(1.0f) - update), du = dh_t * (before - fresh), dr = (fv)(0.0f), di = (fv)(0.0f);
#if HAS_DGATES
            __global const float* arrived = START(dgates) + row * dgates_pitch + j;
            dr = LOAD(arrived);
            du += LOAD(arrived + width);
            dm += LOAD(arrived + 2 * width);
            di = LOAD(arrived + 3 * width);
#endif
            dm *= slope_of_tanh(fresh);
            du *= slope_of_sigmoid(update);
            dr = (dr + dm * LOAD(gate + 3 * width)) * slope_of_sigmoid(reset);
            store_vector(dr, to_x, vector, width, 0);
            store_vector(du, to_x + width, vector, width, 0);
            store_vector(dm, to_x + 2 * width, vector, width, 0);
            store_vector(dr, to_h, vector, width, 0);
            store_vector(du, to_h + width, vector, width, 0);
            store_vector(di + dm * reset, to_h + 2 * width, vector, width, 0);
            if (step > 0) store_vector(dh_t * update, START(dzx) + (row + back) * dzx_pitch + width, vector, width, 0);
          }
        }
      }
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
  }
}
