// pool.cpp -- pooling over windows of images [N,H,W,C] or sequences [N,T,C], and over all of them.
#include "base/error.h"
#include "model/kind.h"

namespace situ::model::kinds {
namespace {

using ir::Attrs;
using ir::Ints;
using ir::Value;
using ir::Values;

Value pooled(Build& b, const LayerSpec& spec, Value x, const char* op) {
  const Shape s = b.shape(x);
  const bool sequence = s.rank() == 3;
  if (s.rank() != 4 && !sequence) fail("it needs images [H,W,C] or sequences [T,C], not {}", to_string(s));
  Ints kernel = pair_of(spec.attrs, "kernel"), stride = pair_of(spec.attrs, "stride"), pad = padding_of(spec.attrs);
  if (stride == Ints{0, 0}) stride = kernel;
  if (sequence) {
    kernel[0] = stride[0] = 1;
    pad[0] = pad[2] = 0;
    x = b.reshape(x, {s[0], 1, s[1], s[2]});
  }
  if (spec.attrs.integer("ceil", 0))  // a last window that hangs over the edge counts
    for (int axis : {0, 1}) {
      const auto i = static_cast<size_t>(axis);
      const int64_t span = b.shape(x)[axis + 1] + pad[i] + pad[i + 2] - kernel[i];
      pad[i + 2] += ceil_div(span, stride[i]) * stride[i] - span;
    }
  Attrs attrs{{"kernel", kernel}, {"stride", stride}};
  if (pad != Ints{0, 0, 0, 0}) attrs.set("pad", pad);
  if (spec.attrs.integer("count_pad", 0)) attrs.set("count_pad", int64_t{1});
  const Value y = b.emit(op, {x}, attrs);
  const Shape t = b.shape(y);
  return sequence ? b.reshape(y, {t[0], t[2], t[3]}) : y;
}

Value build_max(Build& b, const LayerSpec& spec, const Values& in) { return pooled(b, spec, in[0], "max_pool"); }
Value build_avg(Build& b, const LayerSpec& spec, const Values& in) { return pooled(b, spec, in[0], "avg_pool"); }

// The mean over everything between the batch and the channels; keep: with axes of extent 1 in their place.
Value build_global(Build& b, const LayerSpec& spec, const Values& in) {
  Ints axes;
  for (int i = 1; i + 1 < b.shape(in[0]).rank(); ++i) axes.push_back(i);
  if (axes.empty()) fail("there is nothing to pool in {}", to_string(b.shape(in[0])));
  Attrs attrs{{"kind", spec.attrs.text("of")}, {"axes", axes}};
  if (spec.attrs.flag("keep")) attrs.set("keep", int64_t{1});
  return b.emit("reduce", {in[0]}, attrs);
}

Attrs max_defaults() { return {{"stride", int64_t{0}}, {"pad", int64_t{0}}, {"ceil", int64_t{0}}}; }
Attrs avg_defaults() { return {{"stride", int64_t{0}}, {"pad", int64_t{0}}, {"count_pad", int64_t{1}}}; }
Attrs global_defaults() { return {{"of", "mean"}, {"keep", int64_t{0}}}; }

}  // namespace

KindList pool() {
  static constexpr Kind list[] = {
      {"max_pool", "maximum over windows; stride 0: the kernel", 1, 1, "kernel", max_defaults, build_max},
      {"avg_pool", "mean over windows; stride 0: the kernel", 1, 1, "kernel", avg_defaults, build_avg},
      {"global_pool", "mean, max or sum over a whole image or sequence", 1, 1, "", global_defaults, build_global}};
  return list;
}
}  // namespace situ::model::kinds
