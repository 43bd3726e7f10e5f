// linear.cpp -- a matrix over the last axis, with LoRA beside it where asked; embeddings and positions.
#include <cmath>

#include "base/error.h"
#include "model/kind.h"

namespace situ::model::kinds {
namespace {

using ir::Attrs;
using ir::Ints;
using ir::Value;
using ir::Values;

Value weight_of(Build& b, const LayerSpec& spec, Value x, int64_t inputs, int64_t outputs) {
  const Init init = weight_init(spec.attrs, inputs, outputs);
  const Shape image = b.flattened_from(x);
  if (image.rank() == 0) return b.matrix(spec.name + ".weight", inputs, outputs, init);
  // PyTorch flattens channels first: its weight's columns run over (C, H, W), ours over (H, W, C)
  Ints factors = image.dims(), perm{image.rank(), image.rank() - 1};
  factors.push_back(outputs);
  for (int i = 0; i + 1 < image.rank(); ++i) perm.push_back(i);
  return b.parameter(spec.name + ".weight", Shape{inputs, outputs}, init,
                     {{"factors", factors}, {"perm", perm}, {"file", Ints{outputs, inputs}}});
}

// y + alpha / rank * (x A) B
Value with_lora(Build& b, const LayerSpec& spec, Value x, Value y, int64_t inputs, int64_t outputs) {
  if (!b.partial().adapts(spec.name)) return y;
  const LoraMatrices low = b.lora(spec.name, inputs, outputs, {});
  const Value narrow = b.emit("mul", {b.emit("matmul", {x, low.a}), b.constant(low.scale)});
  return b.emit("add", {y, b.emit("matmul", {narrow, low.b})});
}

// The table of an embedding, used a second time: its rows are the columns of this matrix.
Value shared_table(Build& b, const std::string& layer, int64_t inputs, int64_t outputs) {
  const ir::State* state = b.graph().find_state(layer + ".weight");
  if (!state || state->type != f32({outputs, inputs}))
    fail("`tied` names `{}`, which is no embedding of {} entries and {} channels before it", layer, outputs, inputs);
  return b.graph().read(state->name);
}

Value build_linear(Build& b, const LayerSpec& spec, const Values& in) {
  const Shape from = b.shape(in[0]);
  if (from.rank() > 3) fail("it needs rows, not {}: put a flatten layer before it", to_string(from));
  const int64_t inputs = from.cols(), outputs = spec.attrs.integer("channels");
  const Value x = b.reshape(in[0], {from.rows(), inputs});
  const std::string tied = spec.attrs.text("tied");
  Value y = tied.empty() ? b.emit("matmul", {x, weight_of(b, spec, in[0], inputs, outputs)})
                         : b.emit("matmul", {x, shared_table(b, tied, inputs, outputs)}, {{"tb", int64_t{1}}});
  y = with_lora(b, spec, x, y, inputs, outputs);
  if (spec.attrs.flag("bias"))
    y = b.emit("bias", {y, b.parameter(spec.name + ".bias", Shape{outputs}, bias_init(spec.attrs, inputs))});
  Ints dims = from.dims();
  dims.back() = outputs;
  return b.reshape(y, dims);
}

Value build_embedding(Build& b, const LayerSpec& spec, const Values& in) {
  if (b.graph().type(in[0]).dtype != DType::i32) fail("it needs tokens, and its input holds numbers");
  const int64_t entries = spec.attrs.integer("entries"), channels = spec.attrs.integer("channels");
  const Value table =
      b.parameter(spec.name + ".weight", Shape{entries, channels}, {"normal", spec.attrs.number("std")});
  return b.emit("gather", {table, in[0]});
}

// x[N,T,C] + table[T,C]
Value build_positions(Build& b, const LayerSpec& spec, const Values& in) {
  const Shape s = b.shape(in[0]);
  if (s.rank() != 3) fail("it needs sequences [T,C], not {}", to_string(s));
  const int64_t entries = std::max(spec.attrs.integer("entries"), s[1]);
  const bool plain = spec.attrs.flag("plain");  // named and shaped like a bare parameter: NAME [1,T,C]
  const Attrs file = plain ? Attrs{{"file", Ints{1, entries, s[2]}}} : Attrs{};
  const Init init{"normal", spec.attrs.number("std")};
  Value table = b.parameter(plain ? spec.name : spec.name + ".weight", Shape{entries, s[2]}, init, file);
  if (entries > s[1])
    table = b.emit_all("split", {table}, {{"axis", int64_t{0}}, {"sizes", Ints{s[1], entries - s[1]}}})[0];
  return b.emit("add", {in[0], table});
}

// Adds the first row of a table to every place: what a text of one segment gets from BERT's token types.
Value build_segment(Build& b, const LayerSpec& spec, const Values& in) {
  const int64_t channels = b.shape(in[0]).cols(), entries = spec.attrs.integer("entries");
  Value table = b.parameter(spec.name + ".weight", Shape{entries, channels}, {"normal", spec.attrs.number("std")});
  if (entries > 1) table = b.emit_all("split", {table}, {{"axis", int64_t{0}}, {"sizes", Ints{1, entries - 1}}})[0];
  return b.emit("add", {in[0], table});
}

// The same learned row before every sequence: [N,T,C] -> [N,T+1,C]
Value build_class_token(Build& b, const LayerSpec& spec, const Values& in) {
  const Shape s = b.shape(in[0]);
  if (s.rank() != 3) fail("it needs sequences [T,C], not {}", to_string(s));
  const Value token = b.parameter(spec.name, Shape{1, 1, s[2]}, {"normal", spec.attrs.number("std")});
  const Value zeros = b.graph().constant(0, f32({s[0], 1, s[2]}));
  return b.emit("concat", {b.emit("add", {zeros, token}), in[0]}, {{"axis", int64_t{1}}});
}

Attrs linear_defaults() { return {{"bias", int64_t{1}}, {"init", "default"}, {"tied", ""}}; }
Attrs embedding_defaults() { return {{"std", 1.0}}; }
Attrs position_defaults() { return {{"entries", int64_t{0}}, {"std", 0.02}, {"plain", int64_t{0}}}; }
Attrs token_defaults() { return {{"std", 0.02}}; }

}  // namespace

KindList linear() {
  static constexpr Kind list[] = {
      {"linear", "a matrix over the last axis", 1, 1, "channels", linear_defaults, build_linear},
      {"embedding", "a learned row per token", 1, 1, "entries channels", embedding_defaults, build_embedding},
      {"positions", "adds a learned row per place in a sequence", 1, 1, "", position_defaults, build_positions},
      {"segment", "adds the first of some learned rows", 1, 1, "entries", token_defaults, build_segment},
      {"class_token", "puts a learned row before a sequence", 1, 1, "", token_defaults, build_class_token}};
  return list;
}
}  // namespace situ::model::kinds
