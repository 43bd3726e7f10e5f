// self_test.h -- every op of a device against the oracle, on the ops' own examples: what tests, `situ devices` and a
// first start on an unknown driver share.
//
// The tolerance is computed, not typed in: c * eps * (the reference with every term made positive, on |operands|), so
// it grows with the sums an op forms and with nothing else.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "device/device.h"
#include "ops/examples.h"
#include "ops/op.h"

namespace situ::step {

enum class Layout {
  dense,
  pitched,  // operands are slices of wider tensors, results are written into wider ones
};

// Operands and results that are copied on their way: on a device that stores activations as half they are, where the
// kernels take it. Empty: none.
struct Copied {
  std::vector<bool> in, out;
  bool in_at(size_t i) const { return i < in.size() && in[i]; }
  bool out_at(size_t i) const { return i < out.size() && out[i]; }
};
Copied copies_of(const ops::OpDef& op, const ops::Example& example, const device::Device& device);  // none, or all f32

// A program with inputs i0.. and outputs o0.. around one node of `op`.
ir::Graph single_op_graph(const ops::OpDef& op, const ops::Example& example, Layout layout, const Copied& copied = {});
// The node under test in such a program.
const ir::Node& op_node(const ir::Graph& graph, const ops::OpDef& op);
// How each output is stored before the copy that brings it out.
std::map<std::string, DType> result_storage(const device::Device& device, const ir::Graph& graph);
// The operands of an example, rounded to half where they are copied.
std::vector<double> operand_values(const ops::Example& example, size_t index, uint64_t seed, const Copied& copied);

// What the reference makes of an example, and what the terms behind each result add up to, signs aside.
struct Oracle {
  std::vector<std::vector<double>> results, magnitudes;  // one per output
};
Oracle ask_oracle(const ops::OpDef& op, const ops::Example& example, uint64_t seed, const Copied& copied = {});

// The error of one element in units of its tolerance; two NaN agree. A result stored as half may be half a spacing off.
double in_tolerances(double have, double want, double magnitude, DType stored = DType::f32);

// The largest error over the outputs, in units of the computed tolerance: at most 1 passes. `where` says where.
double error_in_tolerances(device::Device& device, const ops::OpDef& op, const ops::Example& example, Layout layout,
                           uint64_t seed, std::string* where);

struct OpResult {
  std::string op;
  bool ok = true;
  std::string detail;  // the worst place, if not ok
};
// One example per op; `progress` is called with (done, total).
std::vector<OpResult> self_test(device::Device& device, const std::function<void(size_t, size_t)>& progress = {});

}  // namespace situ::step
