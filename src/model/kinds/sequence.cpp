// sequence.cpp -- attention and recurrent layers over sequences [N,T,C].
#include <cmath>

#include "base/error.h"
#include "model/kind.h"

namespace situ::model::kinds {
namespace {

using ir::Attrs;
using ir::Ints;
using ir::Value;
using ir::Values;

// Heads lie side by side in the last axis. One input: queries, keys and values beside each other, as one linear layer
// gives them; three inputs: each by itself.
Value build_attention(Build& b, const LayerSpec& spec, const Values& in) {
  const int64_t heads = spec.attrs.integer("heads"), given = spec.attrs.integer("kv_heads");
  const int64_t kv_heads = given ? given : heads;
  Values qkv = in;
  if (in.size() == 1) {
    const int64_t channels = b.shape(in[0]).cols(), parts = heads + 2 * kv_heads;
    if (heads < 1 || kv_heads < 1 || channels % parts)
      fail("{} channels do not divide into {} heads of queries and twice {} of keys and values", channels, heads,
           kv_heads);
    const int64_t d = channels / parts;
    qkv = b.emit_all("split", in, {{"axis", int64_t{-1}}, {"sizes", Ints{heads * d, kv_heads * d, kv_heads * d}}});
  }
  if (qkv.size() != 3) fail("it takes one input (queries, keys, values side by side) or three");
  if (const double base = spec.attrs.number("rotary"); base > 0)
    for (size_t i = 0; i < 2; ++i)
      qkv[i] = b.emit("rotary", {qkv[i]}, {{"heads", i == 0 ? heads : kv_heads}, {"base", base}});
  const int64_t d = b.shape(qkv[0]).cols() / heads;
  return b.emit_all("attention", qkv,
                    {{"heads", heads},
                     {"kv_heads", kv_heads},
                     {"causal", spec.attrs.integer("causal")},
                     {"scale", 1 / std::sqrt(static_cast<double>(d))}})[0];
}

struct Cell {
  const char* op;
  int64_t gates;
};

// x W_ih + b for all steps in one product; the recurrence is one launch.
Value direction(Build& b, const LayerSpec& spec, Value x, int64_t layer, bool reverse, const Cell& cell) {
  const Shape s = b.shape(x);
  const int64_t hidden = spec.attrs.integer("hidden"), width = cell.gates * hidden;
  const std::string suffix = fmt::format("_l{}{}", layer, reverse ? "_reverse" : "");
  const Init init{"uniform", 1 / std::sqrt(static_cast<double>(hidden))};
  auto bias = [&](const char* name) { return b.parameter(spec.name + name + suffix, Shape{width}, init); };
  const Value w_ih = b.matrix(spec.name + ".weight_ih" + suffix, s[2], width, init);
  const Value w_hh = b.matrix(spec.name + ".weight_hh" + suffix, hidden, width, init);
  const Value b_ih = bias(".bias_ih"), b_hh = bias(".bias_hh");
  const bool gru = cell.gates == 3;  // its inner bias is multiplied by a gate, so it stays apart
  const Value sum = gru ? b_ih : b.emit("add", {b_ih, b_hh});
  const Value z = b.reshape(b.affine(b.reshape(x, {s[0] * s[1], s[2]}), w_ih, sum), {s[0], s[1], width});
  Attrs attrs;
  if (reverse) attrs.set("reverse", int64_t{1});
  return b.emit_all(cell.op, gru ? Values{z, w_hh, b_hh} : Values{z, w_hh}, attrs)[0];
}

Value build_recurrent(Build& b, const LayerSpec& spec, const Values& in) {
  const Cell cell = spec.kind == "gru" ? Cell{"gru", 3} : Cell{"lstm", 4};
  if (b.shape(in[0]).rank() != 3) fail("it needs sequences [T,C], not {}", to_string(b.shape(in[0])));
  Value x = in[0];
  for (int64_t layer = 0; layer < spec.attrs.integer("layers"); ++layer) {
    const Value forward = direction(b, spec, x, layer, false, cell);
    if (spec.attrs.flag("bidirectional")) {
      const Value backward = direction(b, spec, x, layer, true, cell);
      x = b.emit("concat", {forward, backward}, {{"axis", int64_t{-1}}});
    } else {
      x = forward;
    }
  }
  return x;
}

Attrs attention_defaults() { return {{"kv_heads", int64_t{0}}, {"causal", int64_t{0}}, {"rotary", 0.0}}; }
Attrs recurrent_defaults() { return {{"layers", int64_t{1}}, {"bidirectional", int64_t{0}}}; }

}  // namespace

KindList sequence() {
  static constexpr Kind list[] = {
      {"attention", "scaled dot products over heads; kv_heads 0: as many as heads", 1, 3, "heads", attention_defaults,
       build_attention},
      {"lstm", "long short-term memory, layers deep", 1, 1, "hidden", recurrent_defaults, build_recurrent},
      {"gru", "gated recurrent unit, layers deep", 1, 1, "hidden", recurrent_defaults, build_recurrent}};
  return list;
}
}  // namespace situ::model::kinds
