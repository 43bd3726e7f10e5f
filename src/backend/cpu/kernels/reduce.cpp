// reduce.cpp -- sum, mean or maximum over some axes.
//
//   reduce          x -> y in one launch
//   reduce_partial  x -> parts[S, count of y]: part s covers its own range of the reduced elements
//   reduce_final    parts -> y, in order; a mean divides by the attribute `count`
//
// After joining axes, x is nested loops of kept and reduced axes. If the innermost is kept, vectors run along it and
// rows are added ("columns"); else each result is the sum of runs ("rows"). Sums are made in blocks of a few dozen
// terms which are then added up, so that the error grows with the root of the length, not with the length.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels/reduce.cpp"
#include <hwy/foreach_target.h>
// The order matters: highway.h after foreach_target.h.
#include <algorithm>
#include <limits>
#include <memory>

#include "backend/cpu/simd-inl.h"
#include "backend/cpu/strided.h"
#include "base/error.h"
#include "ops/op.h"
#include "ops/reduced_axes.h"

#ifndef SITU_BACKEND_CPU_REDUCE_ONCE_
#define SITU_BACKEND_CPU_REDUCE_ONCE_
namespace situ::cpu {
namespace {

constexpr int64_t kColumns = 64;    // of a task, if the innermost axis is kept
constexpr int64_t kBlockRows = 32;  // terms added one after the other before they join the total
constexpr int64_t kRunBlock = 1024;

struct Reduce {
  const float* x = nullptr;
  Axes kept, reduced;                         // all axes but the innermost
  Axis inner;                                 // the innermost
  bool columns = false;                       // the innermost is kept
  int64_t kept_count = 1, reduced_count = 1;  // products of the outer axes
  float* y = nullptr;
  int64_t y_cols = 1, y_pitch = 1, y_part = 0;  // elements from part to part
  bool max = false;
  float scale = 1;
  int64_t wide = 1;  // rows taken together, if they are short and leave no gap
  Axes wide_rows;
  int64_t parts = 1, column_blocks = 1, results_per_task = 1, tasks_per_part = 1;

  float* result(int64_t i, int64_t part) const { return y + part * y_part + i / y_cols * y_pitch + i % y_cols; }
};

}  // namespace
}  // namespace situ::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace situ::cpu::HWY_NAMESPACE {
namespace {

struct Sum {
  static constexpr float kStart = 0;
  static HWY_INLINE Floats join(Floats a, Floats b) { return hn::Add(a, b); }
  static HWY_INLINE float join(float a, float b) { return a + b; }
  static HWY_INLINE float lanes_of(Floats v) { return sum_lanes(v); }
};
struct Max {
  static constexpr float kStart = -std::numeric_limits<float>::infinity();
  static HWY_INLINE Floats join(Floats a, Floats b) { return hn::Max(a, b); }
  static HWY_INLINE float join(float a, float b) { return std::max(a, b); }
  static HWY_INLINE float lanes_of(Floats v) { return max_lanes(v); }
};

// Steps through the offsets of nested loops in order.
class Odometer {
 public:
  Odometer(const Axes& axes, int64_t index) : axes_(axes) {
    for (size_t i = axes.size(); i-- > 0; index /= axes[i].extent) at_[i] = index % axes[i].extent;
    for (size_t i = 0; i < axes.size(); ++i) offset_ += at_[i] * axes[i].stride;
  }
  int64_t offset() const { return offset_; }
  void next() {
    for (size_t i = axes_.size(); i-- > 0;) {
      offset_ += axes_[i].stride;
      if (++at_[i] < axes_[i].extent) return;
      offset_ -= at_[i] * axes_[i].stride;
      at_[i] = 0;
    }
  }

 private:
  const Axes& axes_;
  int64_t at_[kMaxRank] = {};
  int64_t offset_ = 0;
};

// Where rows lie, how far columns are apart, and the factor of the result.
struct Rows {
  const Axes& axes;
  int64_t step;
  float scale;
};

// One vector of columns (n of them exist) over reduced rows [row0, row1).
template <class OP>
HWY_INLINE void reduce_vector(const Rows& r, const float* x, int64_t row0, int64_t row1, int64_t n, float* y) {
  Odometer rows(r.axes, row0);
  Floats total = fill(OP::kStart);
  for (int64_t row = row0; row < row1;) {
    Floats a = fill(OP::kStart);
    for (const int64_t end = std::min(row + kBlockRows, row1); row < end; ++row, rows.next())
      a = OP::join(a, load_up_to(x + rows.offset(), n));
    total = OP::join(total, a);
  }
  store_up_to(hn::Mul(total, fill(r.scale)), y, n);
}

// Four vectors of columns at a time.
template <class OP>
HWY_INLINE void reduce_four(const Rows& r, const float* x, int64_t row0, int64_t row1, float* y) {
  const Tag d;
  const int64_t w = lanes();
  Odometer rows(r.axes, row0);
  const Floats start = fill(OP::kStart), scale = fill(r.scale);
  Floats t0 = start, t1 = start, t2 = start, t3 = start;
  for (int64_t row = row0; row < row1;) {
    Floats a0 = start, a1 = start, a2 = start, a3 = start;
    for (const int64_t end = std::min(row + kBlockRows, row1); row < end; ++row, rows.next()) {
      const float* from = x + rows.offset();
      a0 = OP::join(a0, hn::LoadU(d, from));
      a1 = OP::join(a1, hn::LoadU(d, from + w));
      a2 = OP::join(a2, hn::LoadU(d, from + 2 * w));
      a3 = OP::join(a3, hn::LoadU(d, from + 3 * w));
    }
    t0 = OP::join(t0, a0);
    t1 = OP::join(t1, a1);
    t2 = OP::join(t2, a2);
    t3 = OP::join(t3, a3);
  }
  hn::StoreU(hn::Mul(t0, scale), d, y);
  hn::StoreU(hn::Mul(t1, scale), d, y + w);
  hn::StoreU(hn::Mul(t2, scale), d, y + 2 * w);
  hn::StoreU(hn::Mul(t3, scale), d, y + 3 * w);
}

template <class OP>
void reduce_strided_column(const Rows& r, const float* x, int64_t row0, int64_t row1, float* y) {
  Odometer rows(r.axes, row0);
  float total = OP::kStart;
  for (int64_t row = row0; row < row1;) {
    float a = OP::kStart;
    for (const int64_t end = std::min(row + kBlockRows, row1); row < end; ++row, rows.next())
      a = OP::join(a, x[rows.offset()]);
    total = OP::join(total, a);
  }
  *y = total * r.scale;
}

// Columns [x, x + n) over reduced rows [row0, row1) into a buffer with room for a whole vector at its end.
template <class OP>
void reduce_block(const Rows& r, const float* x, int64_t row0, int64_t row1, int64_t n, float* buffer) {
  int64_t col = 0;
  if (r.step == 1) {
    for (; col + 4 * lanes() <= n; col += 4 * lanes()) reduce_four<OP>(r, x + col, row0, row1, buffer + col);
    for (; col < n; col += lanes()) reduce_vector<OP>(r, x + col, row0, row1, n - col, buffer + col);
  }
  for (; col < n; ++col) reduce_strided_column<OP>(r, x + col * r.step, row0, row1, buffer + col);
}

// Rows much shorter than a vector, without gaps: r.wide of them make one long row; its columns are folded at the end.
template <class OP>
void reduce_short_rows(const Reduce& r, const float* x, int64_t row0, int64_t row1, float* buffer) {
  const int64_t n = r.inner.extent, longs = (row1 - row0) / r.wide;
  HWY_ALIGN float rest[kColumns + hn::MaxLanes(Tag())], sums[kColumns + hn::MaxLanes(Tag())];
  reduce_block<OP>({r.reduced, 1, r.scale}, x, row0 + longs * r.wide, row1, n, rest);
  reduce_block<OP>({r.wide_rows, 1, r.scale}, x + row0 * n, 0, longs, n * r.wide, sums);
  for (int64_t i = 0; i < n; ++i) {
    float total = rest[i];
    for (int64_t k = 0; k < r.wide; ++k) total = OP::join(total, sums[k * n + i]);
    buffer[i] = total;
  }
}

// A task: up to kColumns columns of one kept index, of one part. Results go through a buffer, since y may be cut at any
// place by its pitch.
template <class OP>
void reduce_columns(const Reduce& r, int64_t part, int64_t task) {
  const int64_t kept = task / r.column_blocks, col0 = task % r.column_blocks * kColumns;
  const int64_t row0 = r.reduced_count * part / r.parts, row1 = r.reduced_count * (part + 1) / r.parts;
  const int64_t n = std::min(kColumns, r.inner.extent - col0);
  const float* x = r.x + offset_of(r.kept, kept) + col0 * r.inner.stride;
  HWY_ALIGN float buffer[kColumns + hn::MaxLanes(Tag())];
  if (r.wide > 1)
    reduce_short_rows<OP>(r, x, row0, row1, buffer);
  else
    reduce_block<OP>({r.reduced, r.inner.stride, r.scale}, x, row0, row1, n, buffer);
  for (int64_t i = 0; i < n; ++i) *r.result(kept * r.inner.extent + col0 + i, part) = buffer[i];
}

// n floats side by side, four sums at a time.
template <class OP>
HWY_INLINE float reduce_run(const float* x, int64_t n) {
  const Tag d;
  const int64_t w = lanes();
  const Floats start = fill(OP::kStart);
  Floats a0 = start, a1 = start, a2 = start, a3 = start;
  int64_t i = 0;
  for (; i + 4 * w <= n; i += 4 * w) {
    a0 = OP::join(a0, hn::LoadU(d, x + i));
    a1 = OP::join(a1, hn::LoadU(d, x + i + w));
    a2 = OP::join(a2, hn::LoadU(d, x + i + 2 * w));
    a3 = OP::join(a3, hn::LoadU(d, x + i + 3 * w));
  }
  for (; i + w <= n; i += w) a0 = OP::join(a0, hn::LoadU(d, x + i));
  float total = OP::lanes_of(OP::join(OP::join(a0, a1), OP::join(a2, a3)));
  for (; i < n; ++i) total = OP::join(total, x[i]);
  return total;
}
template <class OP>
float reduce_strided_run(const float* x, int64_t n, int64_t stride) {
  float total = OP::kStart;
  for (int64_t i = 0; i < n;) {
    float a = OP::kStart;
    for (const int64_t end = std::min(i + kBlockRows, n); i < end; ++i) a = OP::join(a, x[i * stride]);
    total = OP::join(total, a);
  }
  return total;
}

// One result: elements [begin, end) of outer reduced axes x innermost, in runs of at most kRunBlock.
template <class OP>
float reduce_result(const Reduce& r, const float* x, int64_t begin, int64_t end) {
  Odometer rows(r.reduced, begin / r.inner.extent);
  int64_t col = begin % r.inner.extent;
  float total = OP::kStart, block = OP::kStart;
  for (int64_t i = begin, terms = 0; i < end;) {
    const int64_t n = std::min({r.inner.extent - col, end - i, kRunBlock});
    const float* from = x + rows.offset() + col * r.inner.stride;
    block = OP::join(block,
                     r.inner.stride == 1 ? reduce_run<OP>(from, n) : reduce_strided_run<OP>(from, n, r.inner.stride));
    i += n;
    col += n;
    if (col == r.inner.extent) {
      col = 0;
      rows.next();
    }
    if (++terms < kBlockRows) continue;
    total = OP::join(total, block);
    block = OP::kStart;
    terms = 0;
  }
  return OP::join(total, block);
}

template <class OP>
void reduce_rows(const Reduce& r, int64_t part, int64_t task) {
  const int64_t count = r.reduced_count * r.inner.extent;
  const int64_t begin = count * part / r.parts, end = count * (part + 1) / r.parts;
  const int64_t last = std::min(r.kept_count, (task + 1) * r.results_per_task);
  for (int64_t i = task * r.results_per_task; i < last; ++i)
    *r.result(i, part) = reduce_result<OP>(r, r.x + offset_of(r.kept, i), begin, end) * r.scale;
}

void reduce_task(const Reduce& r, int64_t task) {
  const int64_t part = task / r.tasks_per_part, rest = task % r.tasks_per_part;
  if (r.columns)
    r.max ? reduce_columns<Max>(r, part, rest) : reduce_columns<Sum>(r, part, rest);
  else
    r.max ? reduce_rows<Max>(r, part, rest) : reduce_rows<Sum>(r, part, rest);
}

}  // namespace
}  // namespace situ::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace situ::cpu {
namespace {
HWY_EXPORT(reduce_task);

constexpr int64_t kElementsPerTask = 8192;
constexpr int64_t kEnoughTasks = 16;

int64_t product(const Axes& axes) {
  int64_t count = 1;
  for (const Axis& axis : axes) count *= axis.extent;
  return count;
}

// Joins neighbouring axes of one kind, and takes the innermost out.
void set_axes(Reduce& r, const Axes& axes, const std::vector<bool>& is_reduced) {
  Axes joined;
  std::vector<bool> kinds;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].extent == 1) continue;
    const bool same = !joined.empty() && kinds.back() == is_reduced[i];
    if (same && joined.back().stride == axes[i].stride * axes[i].extent) {
      joined.back() = {joined.back().extent * axes[i].extent, axes[i].stride};
    } else {
      joined.push_back(axes[i]);
      kinds.push_back(is_reduced[i]);
    }
  }
  if (joined.empty()) {
    joined.push_back({1, 1});
    kinds.push_back(true);
  }
  r.inner = joined.back();
  r.columns = !kinds.back();
  for (size_t i = 0; i + 1 < joined.size(); ++i) (kinds[i] ? r.reduced : r.kept).push_back(joined[i]);
  r.kept_count = product(r.kept);
  r.reduced_count = product(r.reduced);
}

void set_wide(Reduce& r) {
  const int64_t n = r.inner.extent;
  const bool gapless = r.reduced.size() == 1 && r.reduced[0].stride == n && r.inner.stride == 1;
  if (!r.columns || !gapless || 2 * n > kColumns) return;
  r.wide = kColumns / n;
  r.wide_rows = {{r.reduced_count, n * r.wide}};
}

Work finish(std::shared_ptr<Reduce> r) {
  const int64_t row = r->reduced_count * r->inner.extent / r->parts;
  r->column_blocks = ceil_div(r->inner.extent, kColumns);
  set_wide(*r);
  r->results_per_task = std::clamp<int64_t>(kElementsPerTask / std::max<int64_t>(row, 1), 1, 1024);
  r->tasks_per_part = r->columns ? r->kept_count * r->column_blocks : ceil_div(r->kept_count, r->results_per_task);
  const auto run = &HWY_DYNAMIC_DISPATCH(reduce_task);
  return {r->parts * r->tasks_per_part, [r, run](int64_t task) { run(*r, task); }};
}

void set_result(Reduce& r, const Operand& y) {
  r.y = y.f32();
  r.y_cols = y.cols();
  r.y_pitch = y.pitch;
}

std::shared_ptr<Reduce> over_axes(const Call& call) {
  const Operand& x = call.in[0];
  auto r = std::make_shared<Reduce>();
  r->x = x.f32();
  r->max = call.attrs.text("kind") == "max";
  set_axes(*r, axes_of(x), ops::reduced_axes(call.attrs, x.shape().rank()));
  set_result(*r, call.out[0]);
  return r;
}

Work bind_reduce(const Call& call) {
  auto r = over_axes(call);
  if (call.attrs.text("kind") == "mean")
    r->scale = static_cast<float>(static_cast<double>(call.out[0].type.count()) /
                                  static_cast<double>(call.in[0].type.count()));
  return finish(r);
}

Work bind_partial(const Call& call) {
  auto r = over_axes(call);
  const Operand& parts = call.out[0];
  SITU_ASSERT(parts.pitch == parts.cols());
  r->parts = parts.shape()[0];
  r->y_part = parts.cols();
  return finish(r);
}

Work bind_final(const Call& call) {
  const Operand &parts = call.in[0], &y = call.out[0];
  auto r = std::make_shared<Reduce>();
  r->x = parts.f32();
  r->max = call.attrs.text("kind") == "max";
  set_axes(*r, axes_of(parts), {true, false});
  set_result(*r, y);
  if (call.attrs.text("kind") == "mean") r->scale = static_cast<float>(1.0 / call.attrs.number("count"));
  return finish(r);
}

// --- one launch or two
// ------------------------------------------------------------------------------------------------- Two where the
// results alone are too few tasks for a long input. By shape alone.
int64_t parts_of(const ops::OpView& view) {
  const Shape& x = view.in(0).shape;
  const int64_t results = view.out(0).count(), length = x.count() / results;
  const bool columns = !ops::reduced_axes(view.attrs, x.rank()).back();
  const int64_t tasks = columns ? ceil_div(results, kColumns) : results;
  if (tasks >= kEnoughTasks) return 1;
  const int64_t rows = columns ? length : ceil_div(length, kBlockRows);
  return std::clamp<int64_t>(std::min(x.count() / kElementsPerTask, rows), 1, 32);
}
void expand_reduce(device::Expansion& e) {
  const int64_t parts = parts_of(e.view());
  if (parts == 1) return e.result(0, e.launch("reduce", e.inputs(), e.out_type(0), e.attrs()));
  const int64_t results = e.out_type(0).count();
  const std::string& kind = e.attrs().text("kind");
  const ir::Value partial =
      e.launch("reduce_partial", e.inputs(), f32({parts, results}), {{"kind", kind}, {"axes", e.attrs().ints("axes")}});
  ir::Attrs attrs{{"kind", kind}, {"count", static_cast<double>(e.view().in(0).count() / results)}};
  if (kind == "sum") attrs.set("adds_parts", int64_t{1});  // pass/gradient_parts.cpp
  e.result(0, e.launch("reduce_final", {partial}, e.out_type(0), attrs));
}
double seconds_reduce(const ops::OpView&, const device::Target&) { return 1; }

}  // namespace

namespace kernels {
KernelList reduce() {
  static constexpr Kernel kernels[] = {
      {"reduce", bind_reduce}, {"reduce_partial", bind_partial}, {"reduce_final", bind_final}};
  static constexpr device::Candidate candidates[] = {
      {.op = "reduce", .name = "by_parts", .seconds = seconds_reduce, .expand = expand_reduce}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
#endif
