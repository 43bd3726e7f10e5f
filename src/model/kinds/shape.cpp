// shape.cpp -- layers that only move or join values.
#include "base/error.h"
#include "model/kind.h"

namespace situ::model::kinds {
namespace {

using ir::Attrs;
using ir::Ints;
using ir::Value;
using ir::Values;

Value build_flatten(Build& b, const LayerSpec&, const Values& in) {
  const Shape s = b.shape(in[0]);
  const Value y = b.reshape(in[0], {s[0], s.count() / s[0]});
  const std::vector<int64_t> dims = s.dims();
  if (s.rank() > 2) b.note_flattened(y, Shape(std::vector<int64_t>(dims.begin() + 1, dims.end())));
  return y;
}

// [N,H,W,C] -> [N,H*W,C]
Value build_tokens(Build& b, const LayerSpec&, const Values& in) {
  const Shape s = b.shape(in[0]);
  if (s.rank() != 4) fail("it needs images [H,W,C], not {}", to_string(s));
  return b.reshape(in[0], {s[0], s[1] * s[2], s[3]});
}

Value build_sum(Build& b, const LayerSpec&, const Values& in) {
  Value y = in[0];
  for (size_t i = 1; i < in.size(); ++i) y = b.emit("add", {y, in[i]});
  return y;
}
Value build_product(Build& b, const LayerSpec&, const Values& in) { return b.emit("mul", in); }

Value build_concat(Build& b, const LayerSpec& spec, const Values& in) {
  return b.emit("concat", in, {{"axis", spec.attrs.integer("axis")}});
}

// One part of a split along an axis: sizes=[58,58], part=0.
Value build_split(Build& b, const LayerSpec& spec, const Values& in) {
  const Ints& sizes = spec.attrs.ints("sizes");
  const int64_t part = spec.attrs.integer("part");
  if (part < 0 || part >= static_cast<int64_t>(sizes.size())) fail("part {} of {} does not exist", part, sizes.size());
  return b.emit_all("split", in, {{"axis", spec.attrs.integer("axis")}, {"sizes", sizes}})[static_cast<size_t>(part)];
}

// One step of a sequence [N,T,C] -> [N,C]; -1 is the last.
Value build_step(Build& b, const LayerSpec& spec, const Values& in) {
  const Shape s = b.shape(in[0]);
  if (s.rank() != 3) fail("it needs sequences [T,C], not {}", to_string(s));
  const int64_t at = spec.attrs.integer("at"), t = at < 0 ? at + s[1] : at;
  if (t < 0 || t >= s[1]) fail("step {} does not exist in a sequence of {}", at, s[1]);
  Ints sizes;
  if (t > 0) sizes.push_back(t);
  sizes.push_back(1);
  if (t + 1 < s[1]) sizes.push_back(s[1] - t - 1);
  const Values parts = b.emit_all("split", in, {{"axis", int64_t{1}}, {"sizes", sizes}});
  return b.reshape(parts[t > 0 ? 1 : 0], {s[0], s[2]});
}

// Channels of g groups interleaved: [.., g * c] -> [.., c * g]
Value build_shuffle(Build& b, const LayerSpec& spec, const Values& in) {
  const Shape s = b.shape(in[0]);
  const int64_t groups = spec.attrs.integer("groups");
  if (groups < 1 || s.cols() % groups) fail("{} groups do not divide {} channels", groups, s.cols());
  const Value parted = b.reshape(in[0], {s.rows(), groups, s.cols() / groups});
  return b.reshape(b.emit("transpose", {parted}, {{"perm", Ints{0, 2, 1}}}), s.dims());
}

Value build_upsample(Build& b, const LayerSpec& spec, const Values& in) {
  return b.emit("upsample", in, {{"factor", pair_of(spec.attrs, "factor")}, {"mode", spec.attrs.text("mode")}});
}

Attrs concat_defaults() { return {{"axis", int64_t{-1}}}; }
Attrs step_defaults() { return {{"at", int64_t{-1}}}; }
Attrs upsample_defaults() { return {{"factor", int64_t{2}}, {"mode", "nearest"}}; }

}  // namespace

KindList shape() {
  static constexpr Kind list[] = {
      {"flatten", "one row per sample", 1, 1, "", nullptr, build_flatten},
      {"tokens", "an image as a sequence of its places", 1, 1, "", nullptr, build_tokens},
      {"add", "sum of its inputs", 2, 16, "", nullptr, build_sum},
      {"mul", "product of two inputs, extents of 1 stretched", 2, 2, "", nullptr, build_product},
      {"concat", "its inputs side by side", 1, 64, "", concat_defaults, build_concat},
      {"split", "one part of its input along an axis", 1, 1, "sizes part", concat_defaults, build_split},
      {"step", "one step of a sequence", 1, 1, "", step_defaults, build_step},
      {"channel_shuffle", "interleaves groups of channels", 1, 1, "groups", nullptr, build_shuffle},
      {"upsample", "enlarges an image", 1, 1, "", upsample_defaults, build_upsample}};
  return list;
}
}  // namespace situ::model::kinds
