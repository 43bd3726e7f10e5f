// harness.h -- what test files share: devices opened once, a folder that vanishes, and errors that are expected.
#pragma once
#include <functional>
#include <string>

#include "base/error.h"
#include "device/device.h"
#include "ir/graph.h"
#include "ops/op.h"

namespace situ::test {

// "ref", "cpu" or "opencl", opened once. Null if SITU_TEST_DEVICES is set and does not name it.
device::Device* device_under_test(const std::string& name);
// The only node of a graph with this op.
const ir::Node& node_of(const ir::Graph& graph, std::string_view op);
// An op that fusion makes for other devices: here its parts run, which are tested by themselves, and what lies between
// them may be stored as half.
bool runs_parts_of(const device::Device& device, const ops::OpDef& op);
// What a pass makes of a program's text, without the line that names it.
std::string text_after(const std::function<ir::Graph(const ir::Graph&)>& pass, const std::string& text);
std::string scratch_folder();  // of this process, removed at exit: what lasts longer than a TemporaryFolder
// The work raises an error of this kind whose sentence has this part.
void expect_error(const std::function<void()>& work, const std::string& part, ErrorKind kind = ErrorKind::user);

// While it lives, the device stores activations as half.
class StoringHalves {
 public:
  explicit StoringHalves(device::Device& device) : device_(device) { device.activations = DType::f16; }
  ~StoringHalves() { device_.activations = DType::f32; }
  StoringHalves(const StoringHalves&) = delete;
  StoringHalves& operator=(const StoringHalves&) = delete;

 private:
  device::Device& device_;
};

}  // namespace situ::test
