// lstm.cl -- an LSTM layer and its gradient, all time steps in one launch.
//
//   lstm       a = z_t + h_{t-1} w;  i, f, o = sigmoid(a), g = tanh(a);  c = f c + i g;  h = o tanh(c)
//   lstm_grad  dh = dh_t + dz_{t+1} w^T;  dc = dc_t + carry + dh o (1 - tanh(c)^2);  dz from the gates;  carry = dc f
// The carry waits in the second quarter of dz's next row, where its owner will overwrite it.
#include "recurrent.clh"

#ifndef HAS_DC
#define HAS_DC 0  // 1: a gradient arrived at c
#endif
#ifndef HAS_DGATES
#define HAS_DGATES 0  // 1: a gradient arrived at the gates
#endif

__kernel GROUP void lstm(TENSOR(const float, z), TENSOR(const float, w), TENSOR(float, h), TENSOR(float, c),
                         TENSOR(float, gates), int batch, int time, int width, int reverse, int tiles) {
  const int first = get_group_id(0) * tiles * TM, end = min(batch, first + tiles * TM), back = reverse ? 1 : -1;
  for (int step = 0; step < time; ++step) {
    const int t = reverse ? time - 1 - step : step;
    for (int vector = get_local_id(0); vector < VECTORS(width); vector += WX) {
      const int j = vector_start(vector, width);
      __global const float* panel = START(w) + vector * width * 4 * VW;
      const int part[4] = {0, 1 * VW, 2 * VW, 3 * VW};
      for (int n0 = first; n0 < end; n0 += TM) {
        fv sums[TM][4];
        RECURRENT_SUMS(step == 0, 4, sums, START(h), h_pitch, panel, 4 * VW, part, n0, batch, time, t + back, width)
#pragma unroll
        for (int r = 0; r < TM; ++r) {
          if (n0 + r >= end) break;
          const int row = (n0 + r) * time + t;
          __global const float* in = START(z) + row * z_pitch;
          __global float* gate = START(gates) + row * gates_pitch;
          const fv i = sigmoid_of(sums[r][0] + load_own(in, vector, width));
          const fv f = sigmoid_of(sums[r][1] + load_own(in + width, vector, width));
          const fv g = tanh_of(sums[r][2] + load_own(in + 2 * width, vector, width));
          const fv o = sigmoid_of(sums[r][3] + load_own(in + 3 * width, vector, width));
          fv state = i * g;
          if (step > 0) state += f * LOAD(START(c) + (row + back) * c_pitch + j);
          store_vector(i, gate, vector, width, 0);
          store_vector(f, gate + width, vector, width, 0);
          store_vector(g, gate + 2 * width, vector, width, 0);
          store_vector(o, gate + 3 * width, vector, width, 0);
          store_vector(state, START(c) + row * c_pitch, vector, width, 0);
          store_vector(o * tanh_of(state), START(h) + row * h_pitch, vector, width, 0);
        }
      }
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
  }
}

__kernel GROUP void lstm_grad(TENSOR(const float, c), TENSOR(const float, gates), TENSOR(const float, w),
                              TENSOR(const float, dh),
#if HAS_DC
                              TENSOR(const float, dc),
#endif
#if HAS_DGATES
                              TENSOR(const float, dgates),
#endif
                              TENSOR(float, dz), int batch, int time, int width, int reverse, int tiles) {
  const int first = get_group_id(0) * tiles * TM, end = min(batch, first + tiles * TM), back = reverse ? 1 : -1;
  for (int step = time - 1; step >= 0; --step) {
    const int t = reverse ? time - 1 - step : step, last = step == time - 1;
    for (int v0 = get_local_id(0) * NV; v0 < VECTORS(width); v0 += WX * NV) {
      __global const float* panel = START(w) + v0 * width * 4 * VW;
      int part[NV];
      find_panels(part, v0, width, 4 * width);
      for (int n0 = first; n0 < end; n0 += TM) {
        fv sums[TM][NV];
        RECURRENT_SUMS(last, NV, sums, START(dz), dz_pitch, panel, VW, part, n0, batch, time, t - back, 4 * width)
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
            __global float* out = START(dz) + row * dz_pitch;
            const fv i = LOAD(gate), f = LOAD(gate + width), g = LOAD(gate + 2 * width), o = LOAD(gate + 3 * width);
            const fv tanh_c = tanh_of(LOAD(START(c) + row * c_pitch + j));
            const fv dh_t = LOAD(START(dh) + row * dh_pitch + j) + sums[r][p];
            fv dc_t = dh_t * o * slope_of_tanh(tanh_c), before = (fv)(0.0f);
            if (!last) dc_t += load_own(out + width, vector, width);
#if HAS_DC
            dc_t += LOAD(START(dc) + row * dc_pitch + j);
#endif
            if (step > 0) before = LOAD(START(c) + (row + back) * c_pitch + j);
            fv di = dc_t * g, df = dc_t * before, dg = dc_t * i, d_o = dh_t * tanh_c;
#if HAS_DGATES
            __global const float* arrived = START(dgates) + row * dgates_pitch + j;
            di += LOAD(arrived);
            df += LOAD(arrived + width);
            dg += LOAD(arrived + 2 * width);
            d_o += LOAD(arrived + 3 * width);
#endif
            store_vector(di * slope_of_sigmoid(i), out, vector, width, 0);
            store_vector(df * slope_of_sigmoid(f), out + width, vector, width, 0);
            store_vector(dg * slope_of_tanh(g), out + 2 * width, vector, width, 0);
            store_vector(d_o * slope_of_sigmoid(o), out + 3 * width, vector, width, 0);
            if (step > 0) store_vector(dc_t * f, START(dz) + (row + back) * dz_pitch + width, vector, width, 0);
          }
        }
      }
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
  }
}
