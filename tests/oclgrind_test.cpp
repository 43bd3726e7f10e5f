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

TEST(Oclgrind, SmallExamplesOfEveryOp) {
  if (!std::getenv("OCLGRIND_DATA_RACES")) GTEST_SKIP() << "run by tools/run_oclgrind.sh";
  const auto device = step::open_device("opencl");
  for (const ops::OpDef* op : ops::all_ops()) {
    auto examples = ops::examples(*op);
    std::stable_sort(examples.begin(), examples.end(),
                     [](const auto& a, const auto& b) { return elements(a) < elements(b); });
    const size_t tried = op->scalar ? 2 : 5;
    for (size_t i = 0; i < std::min(tried, examples.size()); ++i)
      for (step::Layout layout : {step::Layout::dense, step::Layout::pitched}) {
        std::string where;
        EXPECT_LE(step::error_in_tolerances(*device, *op, examples[i], layout, 1, &where), 1)
            << op->name << " " << examples[i].text << ": " << where;
      }
    device->activations = DType::f16;  // where its kernels take halves: fewer examples, for this is slow
    for (size_t i = 0; i < std::min<size_t>(op->scalar ? 1 : 2, examples.size()); ++i) {
      std::string where;
      EXPECT_LE(step::error_in_tolerances(*device, *op, examples[i], step::Layout::pitched, 1, &where), 1)
          << op->name << " " << examples[i].text << " on halves: " << where;
    }
    device->activations = DType::f32;
  }
}

}  // namespace
}  // namespace situ::test
