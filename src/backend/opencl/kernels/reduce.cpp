// reduce.cpp -- reduce over any axes: each run of neighbouring axes is one reduction, long ones in two launches.
//
// The last run goes first, so that what is left shrinks at once. Parts are counted from the shape and tuning alone.
#include "backend/opencl/kernels/rows.h"
#include "ops/reduced_axes.h"

namespace situ::opencl::kernels {
namespace {

// x as [outer, reduced, inner] around the axes first..last-1.
struct Split {
  int64_t outer = 1, extent = 1, inner = 1;
};
Split split_at(const Shape& shape, int64_t first, int64_t last) {
  Split s;
  for (int i = 0; i < shape.rank(); ++i) (i < first ? s.outer : i < last ? s.extent : s.inner) *= shape[i];
  return s;
}

Call reduce_call(const LaunchSpec& launch, std::string_view kernel, int64_t vw, const TensorArg& x,
                 const TensorArg& y) {
  Call call = make_call("reduce.cl", kernel);
  call.define("VW", vw).define("KIND", launch.node.attrs.text("kind") == "max");
  add_tensor(call, x);
  add_tensor(call, y);
  return call;
}
// A dense tensor seen as rows of another length.
TensorArg as_rows(TensorArg tensor, int64_t rows, int64_t cols) {
  if (!tensor.dense()) return tensor;
  tensor.type.shape = Shape{rows, cols};
  tensor.pitch = cols;
  return tensor;
}
Arg scale_of(const LaunchSpec& launch) { return static_cast<float>(launch.node.attrs.number("scale")); }

// The reduced axes are x's last. In a pitched x they are lines of columns; a dense one is a single long line.
Call bind_rows(const LaunchSpec& launch, const Target& target) {
  const TensorArg& y = launch.out[0];
  TensorArg x = launch.in[0];
  const Split s = split_at(x.shape(), launch.node.attrs.integer("first"), x.shape().rank());
  const int64_t parts = launch.node.attrs.integer("parts"), vw = tuned(target, "vector.VW");
  const int64_t lines = x.dense() ? 1 : s.extent / x.cols(), cols = s.extent / lines;
  if (lines == 1) x = as_rows(x, s.outer, cols);
  Call call = reduce_call(launch, "reduce_rows", vw, x, y);
  add_ints(call, {s.outer, parts, lines, cols});
  const int64_t chunk = lines > 1 ? ceil_div(lines, parts) : round_up(ceil_div(cols, parts), vw);
  if (lines > 1)
    add_ints(call, {chunk, chunk, 0, cols});
  else
    add_ints(call, {0, 1, chunk, chunk});
  add_ints(call, {y.cols()});
  call.arg(scale_of(launch));
  const int64_t items = items_of_row(target, lines > 1 ? cols : chunk);
  if (items == 1) return set_grid(call, parts, s.outer, 1, 1, tuned(target, "reduce.WX"));
  define_rows(call, target, items);
  return set_grid(call, parts * items, s.outer, 1, items);
}

// x's last axis is kept. Where x and y are dense, all kept inner axes are one row of columns.
Call bind_cols(const LaunchSpec& launch, const Target& target) {
  TensorArg x = launch.in[0], y = launch.out[0];
  const Split s = split_at(x.shape(), launch.node.attrs.integer("first"), launch.node.attrs.integer("last"));
  const int64_t parts = launch.node.attrs.integer("parts");
  const bool one_row = x.dense() && y.dense();
  const int64_t cols = one_row ? s.inner : x.cols(), lines = s.inner / cols, vw = vector_width(target, cols);
  if (one_row) {
    x = as_rows(x, s.outer * s.extent, cols);
    y = as_rows(y, s.outer * parts, cols);
  }
  Call call = reduce_call(launch, "reduce_cols", vw, x, y);
  add_ints(call, {s.extent, parts, ceil_div(s.extent, parts), lines, s.outer, cols});
  call.arg(scale_of(launch));
  return set_grid(call, ceil_div(cols, vw), parts, s.outer * lines, tuned(target, "reduce.WX"));
}

// --- the candidate --------------------------------------------------------------------------------------------------
struct Run {
  int64_t first, last;  // axes first .. last - 1
};

std::vector<Run> runs_of(const ir::Attrs& attrs, const Shape& shape) {
  const std::vector<bool> reduced = ops::reduced_axes(attrs, shape.rank());
  std::vector<Run> runs;
  for (int64_t i = 0; i < shape.rank(); ++i) {
    if (!reduced[static_cast<size_t>(i)]) continue;
    if (!runs.empty() && runs.back().last == i)
      ++runs.back().last;
    else
      runs.push_back({i, i + 1});
  }
  return runs;
}

constexpr int64_t kWorthParts = 4;  // chunks; a shorter sum is done before a second launch has begun

// Into how many parts a reduction is cut: none if enough work-items are busy without, else parts of reduce.CHUNK.
int64_t parts_for(const Target& target, const Split& s) {
  const int64_t chunk = tuned(target, "reduce.CHUNK");
  const int64_t items = s.outer * (s.inner == 1 ? 1 : ceil_div(s.inner, vector_width(target, s.inner)));
  if (items >= tuned(target, "reduce.ITEMS") || s.extent * s.inner < kWorthParts * chunk) return 1;
  const int64_t per_part = std::max<int64_t>(1, chunk / s.inner);  // of the reduced extent
  return std::min(ceil_div(s.extent, per_part), ceil_div(tuned(target, "reduce.ITEMS"), items));
}

Shape without(const Shape& shape, const Run& run) {
  std::vector<int64_t> dims = shape.dims();
  dims.erase(dims.begin() + run.first, dims.begin() + run.last);
  return Shape(dims);
}

// Reduces one run of axes of x; `y` is the result's type. Both launches of a long one have the same kind.
ir::Value reduce_run(Expansion& e, ir::Value x, const Run& run, const Type& y, const std::string& kind, double scale) {
  const Shape shape = e.type(x).shape;
  const Split s = split_at(shape, run.first, run.last);
  const bool rows = run.last == shape.rank();
  const char* kernel = rows ? "reduce_rows" : "reduce_cols";
  const int64_t parts = parts_for(e.target(), s);
  ir::Attrs attrs{{"kind", kind}, {"first", run.first}, {"last", run.last}, {"parts", parts}, {"scale", scale}};
  if (parts == 1) return e.launch(kernel, {x}, y, attrs);
  const int64_t cols = shape.cols();  // stays the last axis, for y may be pitched there
  const Type partial = rows ? f32({s.outer, parts}) : f32({s.outer, parts, s.inner / cols, cols});
  const ir::Value part = e.launch(kernel, {x}, partial, attrs.set("scale", 1.0));
  attrs.set("first", int64_t{1}).set("last", int64_t{2}).set("parts", int64_t{1}).set("scale", scale);
  if (!rows && s.outer == 1 && kind == "sum" && scale == 1) attrs.set("adds_parts", int64_t{1});  // gradient_parts.cpp
  return e.launch(kernel, {part}, y, attrs);
}

void expand(Expansion& e) {
  ir::Value x = e.in(0);
  const std::string kind = e.attrs().text("kind") == "max" ? "max" : "sum";
  const double count = static_cast<double>(e.out_type(0).count()) / static_cast<double>(e.type(x).count());
  std::vector<Run> runs = runs_of(e.attrs(), e.type(x).shape);
  for (; !runs.empty(); runs.pop_back()) {
    const bool last = runs.size() == 1;
    const Type y = last ? e.out_type(0) : f32(without(e.type(x).shape, runs.back()));
    x = reduce_run(e, x, runs.back(), y, kind, last && e.attrs().text("kind") == "mean" ? count : 1.0);
  }
  e.result(0, x);
}

}  // namespace

KernelList reduce() {
  static constexpr Kernel kernels[] = {{"reduce_rows", bind_rows, "X"}, {"reduce_cols", bind_cols, "X"}};
  static constexpr device::Candidate candidates[] = {{"reduce", "parts", nullptr, nullptr, expand}};
  return {kernels, candidates};
}

}  // namespace situ::opencl::kernels
