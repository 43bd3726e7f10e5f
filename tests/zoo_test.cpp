// zoo_test.cpp -- one training step of every model of the zoo, on CPU and OpenCL, against the oracle.
//
// The tolerance is computed: the oracle runs a second time with every result of every op off by random amounts within
// float32's rounding of its terms. How far that moves a state is how far float32 may honestly be off; kernels get a few
// times that, since a kernel's error is up to 8 such units (step/self_test.h).
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "backend/ref/device.h"
#include "harness.h"
#include "model/init.h"
#include "step/programs.h"
#include "step/session.h"

namespace situ::test {
namespace {

constexpr double kUnits = 8;
constexpr int64_t kBatch = 4;

struct Case {
  std::string model;
  bool large = false;  // minutes on the oracle: only in scripts/sweep
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.model; }

std::string small_spec(const model::ZooEntry& entry) {
  const model::Model usual = model::find_model(entry.name);
  if (!entry.takes_resolution) return std::string(entry.name);
  if (usual.input.dtype == DType::i32) return std::string(entry.name) + "@8";
  if (entry.name == "lenet5") return "lenet5";
  return std::string(entry.name) + (entry.name == "alexnet" ? "@64" : entry.name == "vit-tiny" ? "@16" : "@32");
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const model::ZooEntry& entry : model::zoo_entries())
    list.push_back({small_spec(entry), entry.parameters > 10'000'000});
  return list;
}

using States = std::map<std::string, std::vector<double>>;

void fill(step::Batch& batch, const model::Model& model) {
  uint32_t word = 7;
  auto next = [&] { return static_cast<double>((word = word * 1664525u + 1013904223u) >> 8) * 0x1p-24; };
  if (model.input.dtype == DType::i32) {
    for (int32_t& v : batch.i32("x")) v = static_cast<int32_t>(next() * 100);
  } else {
    for (float& v : batch.f32("x")) v = static_cast<float>(2 * next() - 1);
  }
  for (int32_t& v : batch.i32("labels")) v = static_cast<int32_t>(next() * model.classes);
  const auto weight = batch.f32("weight");
  for (float& v : weight) v = 1;
  batch.set("lr", 0.05f);
  batch.set("scale", 1.0f / static_cast<float>(weight.size()));
  batch.set("seed", int32_t{3});
}

States states_after_a_step(device::Device& device, const model::Model& model) {
  step::Session session(device, {step::train_program({model, kBatch, {}})});
  for (const ir::State& state : session.states())
    if (!state.attrs.flag("derived")) session.set(state.name, model::initial_values(state, 1));
  step::Batch& batch = session.next_batch();
  fill(batch, model);
  session.run(0, batch);
  States states;
  for (const ir::State& state : session.states())
    if (!state.attrs.flag("derived")) states[state.name] = session.get_double(state.name);
  return states;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) return INFINITY;
    largest = std::max(largest, std::fabs(a[i] - b[i]));
  }
  return largest;
}
double largest_of(const std::vector<double>& a) { return largest_difference(a, std::vector<double>(a.size())); }

class ZooStep : public testing::TestWithParam<Case> {};

TEST_P(ZooStep, AgreesWithTheOracle) {
  if (GetParam().large && !std::getenv("SITU_SWEEP")) GTEST_SKIP() << "takes minutes: scripts/sweep zoo";
  const model::Model model = model::find_model(GetParam().model);
  const auto exact = ref::make_device();
  const States expected = states_after_a_step(*exact, model);
  States moved;  // by how much each state may be off
  for (uint64_t noise : {1u, 2u}) {
    for (const auto& [name, values] : states_after_a_step(*ref::make_device(noise), model)) {
      std::vector<double>& by = moved[name];
      by.resize(1);
      by[0] = std::max(by[0], largest_difference(values, expected.at(name)));
    }
  }
  for (const char* name : {"cpu", "opencl"}) {
    device::Device* device = device_under_test(name);
    if (!device) continue;
    for (const auto& [state, values] : states_after_a_step(*device, model)) {
      const double tolerance = kUnits * (moved.at(state)[0] + 0x1p-24 * largest_of(expected.at(state)));
      EXPECT_LE(largest_difference(values, expected.at(state)), tolerance) << name << " " << state;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Zoo, ZooStep, testing::ValuesIn(cases()), [](const auto& instance) {
  std::string name = instance.param.model;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

// A cold start is mostly the driver's compiler: shapes are arguments, so a deep network needs few programs.
TEST(ZooPrograms, AreFew) {
  device::Device* device = device_under_test("opencl");
  if (!device) GTEST_SKIP() << "opencl is left out by SITU_TEST_DEVICES";
  const std::pair<const char*, int> most[] = {{"mobilenetv2@96", 46}, {"resnet20", 44}};  // with both ways to convolve
  for (const auto& [name, programs] : most) {
    const model::Model model = model::find_model(name);
    const step::Compiled compiled = step::compile({step::train_program({model, 8, {}})}, *device, {});
    EXPECT_LE(step::distinct_programs(compiled, *device), programs) << name;
    EXPECT_GT(step::distinct_programs(compiled, *device), 10) << name;
  }
}

}  // namespace
}  // namespace situ::test
