// gather.cpp -- rows of a table by id, its gradient, and one-hot rows. Ids out of range are never followed.
//
//   one_hot      y[i,k] = ids[i] == k ? 1 : 0
//   gather       y[i,:] = table[ids[i],:], zeros if there is no such row
//   gather_grad  dtable[v,:] = sum over i with ids[i] == v of dy[i,:], in the order of i
// gather_grad needs no atomics: each task owns a range of rows of the table and looks through all ids for them.
#include <algorithm>
#include <cstring>

#include "backend/cpu/kernel.h"

namespace situ::cpu {
namespace {

constexpr int64_t kElementsPerTask = 8192;
constexpr int64_t kMostOwners = 16;

int64_t rows_per_task(int64_t cols) { return std::max<int64_t>(1, kElementsPerTask / cols); }

struct Ids {
  const int32_t* data = nullptr;
  int64_t cols = 0, pitch = 0;
  int64_t at(int64_t i) const { return data[i / cols * pitch + i % cols]; }
};
Ids ids_of(const Operand& o) { return {o.i32(), o.cols(), o.pitch}; }

Work bind_one_hot(const Call& call) {
  const Ids ids = ids_of(call.in[0]);
  const Operand y = call.out[0];
  const int64_t step = rows_per_task(y.cols());
  return {ceil_div(y.rows(), step), [=](int64_t task) {
            for (int64_t i = task * step; i < std::min(y.rows(), (task + 1) * step); ++i) {
              float* row = y.f32() + i * y.pitch;
              std::fill_n(row, y.cols(), 0.0f);
              const int64_t id = ids.at(i);
              if (id >= 0 && id < y.cols()) row[id] = 1;
            }
          }};
}

Work bind_gather(const Call& call) {
  const Operand table = call.in[0], y = call.out[0];
  const Ids ids = ids_of(call.in[1]);
  const int64_t step = rows_per_task(y.cols());
  return {ceil_div(y.rows(), step), [=](int64_t task) {
            for (int64_t i = task * step; i < std::min(y.rows(), (task + 1) * step); ++i) {
              float* row = y.f32() + i * y.pitch;
              const int64_t id = ids.at(i);
              if (id >= 0 && id < table.rows())
                std::memcpy(row, table.f32() + id * table.pitch, static_cast<size_t>(y.cols()) * sizeof(float));
              else
                std::fill_n(row, y.cols(), 0.0f);
            }
          }};
}

Work bind_gather_grad(const Call& call) {
  const Ids ids = ids_of(call.in[0]);
  const Operand dy = call.in[1], dtable = call.out[0];
  const int64_t count = call.in[0].type.count(), step = ceil_div(dtable.rows(), std::min(dtable.rows(), kMostOwners));
  return {ceil_div(dtable.rows(), step), [=](int64_t task) {
            const int64_t first = task * step, last = std::min(dtable.rows(), first + step);
            for (int64_t v = first; v < last; ++v) std::fill_n(dtable.f32() + v * dtable.pitch, dtable.cols(), 0.0f);
            for (int64_t i = 0; i < count; ++i) {
              const int64_t id = ids.at(i);
              if (id < first || id >= last) continue;
              const float* from = dy.f32() + i * dy.pitch;
              float* to = dtable.f32() + id * dtable.pitch;
              for (int64_t c = 0; c < dtable.cols(); ++c) to[c] += from[c];
            }
          }};
}

}  // namespace

namespace kernels {
KernelList gather() {
  static constexpr Kernel kernels[] = {
      {"one_hot", bind_one_hot}, {"gather", bind_gather}, {"gather_grad", bind_gather_grad}};
  return {kernels, {}};
}
}  // namespace kernels
}  // namespace situ::cpu
