// harness.h -- one op, one device, through the whole compiler, against the oracle.
//
// The tolerance is computed, not typed in: c * eps * (the reference with every term made positive, on |operands|), so
// it grows with the sums an op forms and with nothing else.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "device/device.h"
#include "ir/graph.h"
#include "ops/examples.h"
#include "ops/op.h"
#include "step/session.h"

namespace situ::test {

using Tensors = std::map<std::string, std::vector<double>>;

enum class Layout {
  dense,
  pitched,  // operands are slices of wider tensors, results are written into wider ones
};

// A program with inputs i0.. and outputs o0.. around one node of `op`.
ir::Graph single_op_graph(const ops::OpDef& op, const ops::Example& example, Layout layout);
Tensors example_inputs(const ir::Graph& graph, const ops::Example& example, uint64_t seed);

// Runs a program's inputs through a session of its own; returns its outputs.
Tensors run(device::Device& device, const ir::Graph& graph, const Tensors& inputs,
            const step::SessionOptions& options = {});

// The largest error over the outputs, in units of the computed tolerance: at most 1 passes. `where` says where.
double error_in_tolerances(device::Device& device, const ops::OpDef& op, const ops::Example& example, Layout layout,
                           uint64_t seed, std::string* where);

// Devices under test, opened once: "cpu", "opencl". Null if not there; SITU_TEST_DEVICES=cpu restricts.
device::Device* device_under_test(const std::string& name);
std::string scratch_folder();  // of this process, removed at exit

}  // namespace situ::test
