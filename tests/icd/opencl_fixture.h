// opencl_fixture.h -- kernels, launches and a device for tests of the OpenCL runtime: y += a * x and a few that
// misbehave.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/opencl/device.h"
#include "backend/opencl/loader.h"

namespace situ::opencl::test {

// Skips only where no OpenCL library is installed at all; a broken driver fails.
class OpenclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!opencl_installed()) GTEST_SKIP() << "no OpenCL library is installed";
  }
};

// Sets an environment variable and puts back what was there.
class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Environment() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

inline constexpr char kSource[] = R"(
#include "shared.clh"
#include "shared.clh"
#define TENSOR(T, name) __global T* name, ulong name##0, int name##_pitch
__kernel void axpy(TENSOR(const float, x), TENSOR(float, y), int cols, float a) {
  const size_t c = get_global_id(0), r = get_global_id(1);
  if (c < cols) y[y0 + r * y_pitch + c] += a * x[x0 + r * x_pitch + c];
}
__kernel void look_up(TENSOR(float, y), __global const int* table) {
  y[y0 + get_global_id(0)] = shared_offset(table[get_global_id(0)]);
}
__kernel void grouped(TENSOR(float, y)) { y[y0 + get_global_id(0)] = 1; }
)";

inline constexpr char kSharedSource[] = R"(
__kernel void grouped(__global float* y, ulong y0, int pitch) {
  __local float first;
  if (get_local_id(0) == 0) first = 1;
  barrier(CLK_LOCAL_MEM_FENCE);
  y[y0 + get_global_id(0)] = first;
}
)";

struct Matrix {
  int slab = 0;
  int64_t offset = 0, rows = 1, cols = 1, pitch = 1;
  device::TensorArg arg() const { return {slab, offset, pitch, f32({rows, cols})}; }
};

inline Call call_of(const char* kernel) {
  Call call;
  call.file = "test.cl";
  call.kernel = kernel;
  return call;
}

inline Call bind_axpy(const device::LaunchSpec& launch, const device::Target&) {
  Call call = call_of("axpy");
  call.arg(launch.in[0]).arg(launch.out[0]).arg(static_cast<int32_t>(launch.out[0].cols()));
  call.arg(static_cast<float>(launch.node.attrs.number("a")));
  call.global = {static_cast<size_t>(round_up(launch.out[0].cols(), 4)), static_cast<size_t>(launch.out[0].rows()), 1};
  call.local = {4, 1, 1};
  return call;
}

inline Call bind_table(const device::LaunchSpec& launch, const device::Target&) {
  Call call = call_of("look_up");
  TableArg table;
  for (int64_t word : launch.node.attrs.ints("words")) table.words.push_back(static_cast<int32_t>(word));
  call.arg(launch.out[0]).arg(table);
  call.global = {table.words.size(), 1, 1};
  return call;
}

inline Call bind_grouped(const device::LaunchSpec& launch, const device::Target&) {
  Call call = call_of("grouped");
  if (launch.node.op == "test_shared") call.file = "shared.cl";
  call.arg(launch.out[0]);
  call.global = {static_cast<size_t>(launch.out[0].cols()), 1, 1};
  call.local = {static_cast<size_t>(launch.node.attrs.integer("group")), 1, 1};
  return call;
}

inline Call bind_broken(const device::LaunchSpec& launch, const device::Target&) {
  Call call = call_of("broken");
  call.file = "broken.cl";
  call.define("WIDTH", 4).arg(launch.out[0]);
  return call;
}

inline Call bind_too_few(const device::LaunchSpec& launch, const device::Target&) {
  Call call = call_of("axpy");
  call.arg(launch.out[0]);
  return call;
}

// A program of its own for every value: the prelude differs.
inline Call bind_variant(const device::LaunchSpec& launch, const device::Target&) {
  Call call = call_of("fill");
  call.file = "variant.cl";
  call.prelude = fmt::format("float variant_value() {{ return {}.0f; }}", launch.node.attrs.integer("value"));
  call.arg(launch.out[0]);
  return call;
}

inline Overrides test_kernels() {
  static constexpr Kernel kKernels[] = {
      {"test_axpy", bind_axpy},       {"test_table", bind_table},   {"test_grouped", bind_grouped},
      {"test_shared", bind_grouped},  {"test_broken", bind_broken}, {"test_too_few", bind_too_few},
      {"test_variant", bind_variant},
  };
  Overrides overrides;
  overrides.kernels = {{kKernels, {}}};
  overrides.sources = {
      {"test.cl", kSource},
      {"shared.cl", kSharedSource},
      {"shared.clh", "float shared_offset(int word) { return 1000 + word; }\n"},
      {"broken.cl", "__kernel void broken(__global float* y) { y[0] = no_such_thing; }\n"},
      {"variant.cl", "__kernel void fill(__global float* y, ulong y0, int pitch) { y[y0] = variant_value(); }\n"}};
  return overrides;
}

inline device::LaunchSpec named_launch(const char* kernel, const Matrix& y, ir::Attrs attrs = {}) {
  device::LaunchSpec launch;
  launch.node.op = kernel;
  launch.node.attrs = std::move(attrs);
  launch.out = {y.arg()};
  return launch;
}
inline device::LaunchSpec axpy_launch(const Matrix& x, const Matrix& y, float a) {
  device::LaunchSpec launch = named_launch("test_axpy", y, {{"a", static_cast<double>(a)}});
  launch.in = {x.arg()};
  return launch;
}
inline device::LaunchSpec table_launch(const Matrix& y, const ir::Ints& words) {
  return named_launch("test_table", y, {{"words", words}});
}
inline device::LaunchSpec grouped_launch(const char* kernel, const Matrix& y, int64_t group) {
  return named_launch(kernel, y, {{"group", group}});
}
inline device::LaunchSpec variant_launch(const Matrix& y, int64_t value) {
  return named_launch("test_variant", y, {{"value", value}});
}

// A device with the test kernels.
struct Rig {
  explicit Rig(const device::DeviceOptions& options = {}, const Overrides& overrides = test_kernels())
      : device(make_device(options, overrides)) {}
  std::unique_ptr<device::Device> device;
};

}  // namespace situ::opencl::test
