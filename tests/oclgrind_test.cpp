// oclgrind_test.cpp -- every op's kernels inside oclgrind, which reports races and accesses out of bounds: the smallest
// example of each, and those that reach an edge. tools/run_oclgrind.sh runs it and reads the report.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "harness.h"
#include "step/devices.h"
#include "step/self_test.h"

namespace situ::test {
namespace {

int64_t elements(const ops::Example& example) {
  int64_t count = 0;
  for (const auto& input : example.inputs) count += input.type.count();
  return count;
}

void run_smallest(device::Device& device, const ops::OpDef& op, size_t tried,
                  std::initializer_list<step::Layout> layouts) {
  auto examples = ops::examples(op);
  std::stable_sort(examples.begin(), examples.end(),
                   [](const auto& a, const auto& b) { return elements(a) < elements(b); });
  for (size_t i = 0; i < std::min(tried, examples.size()); ++i)
    for (step::Layout layout : layouts) {
      std::string where;
      EXPECT_LE(step::error_in_tolerances(device, op, examples[i], layout, 1, &where), 1)
          << op.name << " " << examples[i].text << " with activations of " << name_of(device.activations) << ": "
          << where;
    }
}

TEST(Oclgrind, SmallExamplesOfEveryOp) {
  if (!std::getenv("OCLGRIND_DATA_RACES")) GTEST_SKIP() << "run by tools/run_oclgrind.sh";
  const auto device = step::open_device("opencl");
  for (const ops::OpDef* op : ops::all_ops()) {
    run_smallest(*device, *op, op->scalar ? 2 : 5, {step::Layout::dense, step::Layout::pitched});
    if (runs_parts_of(*device, *op)) continue;
    device->activations = DType::f16;  // where its kernels take halves: fewer examples, for this is slow
    run_smallest(*device, *op, op->scalar ? 1 : 2, {step::Layout::pitched});
    device->activations = DType::f32;
  }
}

// As phones' records have it: operands through images, rows shared by the work-items of a group.
TEST(Oclgrind, SmallExamplesThroughImagesAndInSharedRows) {
  if (!std::getenv("OCLGRIND_DATA_RACES")) GTEST_SKIP() << "run by tools/run_oclgrind.sh";
  device::DeviceOptions options;
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"gemm.IMAGE", 1}, {"gemm.IMAGE_A", 1}, {"gemm.VW", 4}, {"rows.ITEMS", 8}, {"vector.VW", 1}})
    options.tuning.set(key, value);
  const auto device = step::open_device("opencl", options);
  for (const char* op : {"matmul", "conv2d", "conv2d_dx", "conv2d_dw", "softmax", "softmax_xent", "accuracy",
                         "layer_norm", "layer_norm_dx", "reduce"})
    run_smallest(*device, ops::get(op), 6, {step::Layout::dense, step::Layout::pitched});
}

}  // namespace
}  // namespace situ::test
