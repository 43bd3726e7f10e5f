// examples.h -- the operands an op is tried with, from its `examples` text.
//
//   "f32[4,10], i32[4]<10 {axis=1}; f32[2,3]+"        examples are separated by ;  attributes stand in {} at the end
//   type        random values in [-1, 1), never closer than 0.05 to 0 nor, where it can be avoided, to each other
//   type<n      integers 0..n-1        type+  values in [0.5, 1.5)        type=v  all v
//   type*s      like type alone, times s
#pragma once
#include <string>
#include <vector>

#include "ops/op.h"

namespace situ::ops {

struct ExampleInput {
  Type type;
  enum Kind { signed_unit, integer, positive, fixed } kind = signed_unit;
  double bound = 1;  // of integer and fixed; the factor of signed_unit
};
struct Example {
  std::string text;
  std::vector<ExampleInput> inputs;
  Attrs attrs;
};

std::vector<Example> examples(const OpDef& op);
std::vector<double> example_values(const ExampleInput& input, uint64_t seed);  // exactly representable in f32

}  // namespace situ::ops
