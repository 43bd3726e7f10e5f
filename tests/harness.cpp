#include "harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "ir/dead_code.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "step/devices.h"

namespace situ::test {

namespace {

std::map<std::string, std::unique_ptr<device::Device>> devices;

// Devices go while the driver is still there: at exit its own statics may be gone before ours.
struct ClosesDevices : testing::Environment {
  void TearDown() override { devices.clear(); }
};
[[maybe_unused]] const auto* const closes_devices = testing::AddGlobalTestEnvironment(new ClosesDevices);

}  // namespace

device::Device* device_under_test(const std::string& name) {
  const char* only = std::getenv("SITU_TEST_DEVICES");
  if (only && std::string(only).find(name) == std::string::npos) return nullptr;
  auto it = devices.find(name);
  if (it != devices.end()) return it->second.get();
  device::DeviceOptions options;
  options.cache_folder = (std::filesystem::temp_directory_path() / "situ-test-cache").string();
  options.self_test = false;  // the tests are the test
  return (devices[name] = step::open_device(name, options)).get();
}

const ir::Node& node_of(const ir::Graph& graph, std::string_view op) {
  for (const ir::Node& node : graph.nodes)
    if (node.op == op) return node;
  fail("the graph has no {}", op);
}

bool runs_parts_of(const device::Device& device, const ops::OpDef& op) {
  return op.fused && !device.has_kernel(op.name) && !device.has_candidate(op.name);
}

std::string text_after(const std::function<ir::Graph(const ir::Graph&)>& pass, const std::string& text) {
  const ir::Graph graph = ir::dead_code(pass(ir::parse("program p\n" + text)));
  ir::verify(graph);
  const std::string printed = ir::print(graph);
  return printed.substr(printed.find('\n') + 1);
}

std::string scratch_folder() {
  static const TemporaryFolder folder;
  return folder.path();
}

void expect_error(const std::function<void()>& work, const std::string& part, ErrorKind kind) {
  try {
    work();
    ADD_FAILURE() << "no error; expected: " << part;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.what();
  }
}

}  // namespace situ::test
