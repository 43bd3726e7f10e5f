// recurrent.cl -- the recurrent weight w[H, G * H] in the order in which the layers read it.
//
//   pack_gates   p[vector][k][gate][VW]:  w[k, gate * H + start of the vector + lane]
//   pack_back    p[vector][k][VW]:        w[start of the vector + lane, k], k along all gates
// A vector starts where the layers' channel vectors do, the last one early if H is no multiple of VW.
#include "common.clh"

__kernel GROUP void pack_gates(TENSOR(const float, w), TENSOR(float, p), int width, int gates, int chunk) {
  const int vector = get_global_id(1), k0 = get_global_id(0) * chunk, k1 = min(width, k0 + chunk);
  __global const float* from = START(w) + vector_start(vector, width);
  __global float* to = START(p) + vector * width * gates * VW;
  for (int k = k0; k < k1; ++k)
    for (int g = 0; g < gates; ++g) STORE(LOAD(from + k * w_pitch + g * width), to + (k * gates + g) * VW);
}

// Lane by lane: reads run along w, writes stay within the chunk, which the nearest cache holds.
__kernel GROUP void pack_back(TENSOR(const float, w), TENSOR(float, p), int width, int gates, int chunk) {
  const int vector = get_global_id(1), depth = width * gates, k0 = get_global_id(0) * chunk, k1 = min(depth, k0 + chunk);
  __global const float* from = START(w) + vector_start(vector, width) * w_pitch;
  __global float* to = START(p) + vector * depth * VW;
  for (int l = 0; l < VW; ++l)
    for (int k = k0; k < k1; ++k) to[k * VW + l] = from[l * w_pitch + k];
}
