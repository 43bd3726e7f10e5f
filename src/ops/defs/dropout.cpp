// dropout.cpp -- y = x / (1 - p) where the element's random number is at least p, else 0.
//
// The number depends on (element, stream, seed, step) alone (base/philox.h), so the gradient is the same op on dy: the
// mask is made again instead of being kept. Elements count on from micro-batch to micro-batch (from a multiple of
// four), so that a batch cut into micro-batches has the masks of the whole one. p is compared as f32, as devices do.
#include "base/philox.h"
#include "ops/op.h"

namespace situ::ops::defs {
namespace {

Types type(const OpView& v) {
  need(v.arity() == 4, "x, seed, step and micro are needed");
  need(v.in(0).dtype == DType::f32, "x must be f32");
  for (int i = 1; i < 4; ++i) need(v.in(i) == i32({}), "seed, step and micro must be i32[]");
  const double p = v.attrs.number("p");
  if (!(p >= 0 && p < 1)) fail("p is {}: use at least 0 and less than 1", p);
  v.attrs.integer("stream");
  return {v.in(0)};
}

void gradient(GradBuilder& g) {
  if (g.wants(0)) g.add(0, g.emit("dropout", {g.dout(0), g.in(1), g.in(2), g.in(3)}, g.attrs()));
}

uint32_t bits(double v) { return static_cast<uint32_t>(static_cast<int64_t>(v)); }

void reference(const RefCall& c) {
  const RefTensor &x = c.in[0], &y = c.out[0];
  const double p = c.attrs.number("p");
  const uint32_t stream = static_cast<uint32_t>(c.attrs.integer("stream"));
  const uint64_t before = uint64_t{bits(c.in[3][0])} * static_cast<uint64_t>(round_up(x.count(), 4));
  for (int64_t i = 0; i < x.count(); ++i) {
    const uint32_t word = random_word(before + static_cast<uint64_t>(i), stream, bits(c.in[1][0]), bits(c.in[2][0]));
    y[i] = unit_float(word) >= static_cast<float>(p) ? x[i] / (1 - p) : 0;
  }
}

constexpr std::string_view kExamples =
    "f32[], i32[]<9, i32[]<9, i32[]<9 {p=0.5, stream=1}; f32[33], i32[]<100000, i32[]<1000, i32[]<4 {p=0.5, stream=7};"
    "f32[7,9], i32[]<100, i32[]<100, i32[]=0 {p=0.1, stream=0}; f32[3,65], i32[]<100, i32[]=0, i32[]<3 {p=0.7, "
    "stream=3};"
    "f32[2,3,5,17], i32[]=0, i32[]<100, i32[]=0 {p=0.25, stream=2000000000}; f32[16], i32[]<9, i32[]<9, i32[]<9 {p=0, "
    "stream=5};"
    "f32[31,64], i32[]=2147483520, i32[]<100, i32[]=0 {p=0.9, stream=11}; f32[5,1], i32[]<9, i32[]<9, i32[]<9 {p=0.3, "
    "stream=1}";

}  // namespace

OpList dropout() {
  static constexpr OpDef defs[] = {{.name = "dropout",
                                    .signature = "(x: float, seed: int, step: int, micro: int) -> y",
                                    .type = type,
                                    .grad = gradient,
                                    .reference = reference,
                                    .aliases = first_over_first,
                                    .examples = kExamples}};
  return defs;
}
}  // namespace situ::ops::defs
