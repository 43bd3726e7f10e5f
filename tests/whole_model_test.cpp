// whole_model_test.cpp -- what whole models must not cost: a score matrix, a launch per time step, a copy.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "harness.h"
#include "model/model_file.h"
#include "step/programs.h"
#include "step/run.h"
#include "step/session.h"

namespace situ::test {
namespace {

step::Program train_step(const std::string& model_name, int64_t batch) {
  const model::Model model = model::find_model(model_name);
  return step::compile({step::train_program({model, batch, {}})}, *device_under_test("cpu"), {}).programs[0];
}

int64_t copies(const step::Program& program) {
  int64_t count = 0;
  for (const device::LaunchSpec& launch : program.launches) count += launch.node.op == "copy";
  return count;
}

TEST(WholeModels, AttentionsMemoryGrowsLinearlyWithTheLength) {
  if (!device_under_test("cpu")) GTEST_SKIP();
  const auto bytes = [](int64_t length) {
    return static_cast<double>(train_step("gpt-mini@" + std::to_string(length), 1).plan.arena_bytes());
  };
  const double shortest = bytes(128);
  for (int64_t times : {2, 4, 8})
    EXPECT_LT(bytes(128 * times), 1.05 * static_cast<double>(times) * shortest) << 128 * times;
}

// From 512 rows on: below, a product of few rows may be split, or need no second launch to add up its parts.
TEST(WholeModels, AnLstmsLaunchesDoNotDependOnTheLength) {
  if (!device_under_test("cpu")) GTEST_SKIP();
  EXPECT_EQ(train_step("char-lstm@64", 8).launches.size(), train_step("char-lstm@512", 8).launches.size());
}

TEST(WholeModels, ConcatsAndStridedGradientsCostNoCopy) {
  if (!device_under_test("cpu")) GTEST_SKIP();
  EXPECT_EQ(copies(train_step("squeezenet1.1@64", 2)), 0);
  EXPECT_EQ(copies(train_step("resnet20", 2)), 0);
  EXPECT_EQ(copies(train_step("resnet18@64", 2)), 0);
}

// A byte's row times a matrix is one of 256 products, however long the text: with half as many entries as lookups or
// fewer, the table is multiplied. The larger of the two tables here is not, and no token names its further rows.
class Lookups : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int64_t kSamples = 4, kLength = 8, kTokens = 5;

  static model::Model model_with(int64_t entries) {
    return model::parse_model(fmt::format(R"({{"input": [{}], "tokens": true, "classes": 3, "layers": [
            {{"name": "table", "kind": "embedding", "entries": {}, "channels": 2}},
            {{"name": "cell", "kind": "{}", "hidden": 3}}, {{"name": "head", "kind": "linear", "channels": 3}}]}})",
                                          kLength, entries, GetParam()),
                              "net");
  }

  // Every state after a step, the rows of the table that tokens name alone.
  static std::map<std::string, std::vector<double>> after_a_step(int64_t entries) {
    step::Session session(*device_under_test("ref"), {step::train_program({model_with(entries), kSamples, {}})});
    for (const ir::State& state : session.states()) {
      std::vector<double> values(static_cast<size_t>(state.type.count()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i + state.name.size()));
      if (state.attrs.text("role") == "parameter") session.set(state.name, values);
    }
    step::Batch& batch = session.next_batch();
    for (int64_t i = 0; i < kSamples * kLength; ++i) {
      batch.i32("x")[static_cast<size_t>(i)] = static_cast<int32_t>(i * i % kTokens);
      batch.i32("labels")[static_cast<size_t>(i)] = static_cast<int32_t>(i % 3);
    }
    std::ranges::fill(batch.f32("weight"), 1.0f);
    batch.set("scale", 1.0f);
    batch.set("lr", 0.5f);
    session.run(0, batch);
    std::map<std::string, std::vector<double>> values;
    for (const ir::State& state : session.states()) {
      values[state.name] = session.get_double(state.name);
      if (state.name.starts_with("table")) values[state.name].resize(2 * kTokens);
    }
    return values;
  }
};

TEST_P(Lookups, InASmallTableAreOfProducts) {
  if (!device_under_test("ref")) GTEST_SKIP();
  const auto rows_of_first_product = [](int64_t entries) {
    const ir::Graph graph = step::train_program({model_with(entries), kSamples, {}});
    const auto product = std::ranges::find(graph.nodes, "matmul", &ir::Node::op);
    return graph.type(product->inputs[0]).shape.rows();
  };
  EXPECT_EQ(rows_of_first_product(16), 16);
  EXPECT_EQ(rows_of_first_product(17), kSamples * kLength);
  const auto few = after_a_step(kTokens), many = after_a_step(17);
  ASSERT_EQ(few.size(), many.size());
  for (const auto& [name, values] : few)
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], many.at(name)[i], 1e-12) << name << " " << i;
}
INSTANTIATE_TEST_SUITE_P(Cells, Lookups, testing::Values("lstm", "gru"), [](const auto& p) { return p.param; });

// A table that is an embedding and, transposed, the last layer: one parameter, its gradient the sum over both uses.
class Tied : public testing::Test {
 protected:
  const model::Model model = model::parse_model(
      "{\"input\": [3], \"tokens\": true, \"classes\": 5, \"layers\": [{\"name\": \"table\", \"kind\": "
      "\"embedding\", \"entries\": 5, \"channels\": 2}, {\"name\": \"head\", \"kind\": \"linear\", "
      "\"channels\": 5, \"bias\": false, \"tied\": \"table\"}]}",
      "net");
  step::Session session{*device_under_test("ref"), {step::train_program({model, 1, {.momentum = 0}})}};

  // The loss at these values; the step's update is left in the state.
  double loss_at(const std::vector<double>& table, float lr) {
    session.set("table.weight", table);
    step::Batch& batch = session.next_batch();
    const int32_t tokens[] = {1, 4, 1}, labels[] = {4, 1, 0};
    std::copy_n(tokens, 3, batch.i32("x").begin());
    std::copy_n(labels, 3, batch.i32("labels").begin());
    std::fill_n(batch.f32("weight").begin(), 3, 1.0f);
    batch.set("scale", 1.0f);
    batch.set("lr", lr);
    session.run(0, batch);
    return session.get_double(step::kTrainMetrics)[3];
  }
};

TEST_F(Tied, BothUsesAddUp) {
  const std::vector<double> table{0.3, -0.2, 0.5, 0.7, -0.4, 0.1, 0.9, -0.6, 0.2, 0.8};
  loss_at(table, 1);
  const std::vector<double> fresh = session.get_double("table.weight");
  for (size_t i = 0; i < table.size(); ++i) {
    std::vector<double> up = table, down = table;
    up[i] += 1e-5;
    down[i] -= 1e-5;
    EXPECT_NEAR(table[i] - fresh[i], (loss_at(up, 0) - loss_at(down, 0)) / 2e-5, 1e-7) << i;
  }
}

// A batch norm with running statistics goes into the convolution before it, and is computed when weights change, not in
// every run.
class Folding : public testing::Test {
 protected:
  const model::Model model = model::parse_model(
      "{\"input\": [5, 5, 2], \"classes\": 3, \"layers\": [{\"name\": \"conv\", \"kind\": \"conv\", "
      "\"channels\": 3, \"kernel\": 3, \"bias\": false}, {\"name\": \"bn\", \"kind\": \"batch_norm\"}, "
      "{\"kind\": \"global_pool\"}]}",
      "net");

  static std::vector<double> values(const Type& type, double from) {
    std::vector<double> v(static_cast<size_t>(type.count()));
    for (size_t i = 0; i < v.size(); ++i) v[i] = from + 0.25 * static_cast<double>(i * 7 % 5);
    return v;
  }
  // The same by the formula: (conv - mean) / sqrt(var + eps) * gamma + beta.
  static ir::Graph by_formula() {
    ir::Graph graph;
    graph.name = "formula";
    const auto in = [&](const char* name, const Type& type) { return graph.input(name, type); };
    const ir::Value x = in("x", f32({2, 5, 5, 2})), w = in("conv.weight", f32({3, 3, 2, 3})),
                    gamma = in("bn.weight", f32({3})), beta = in("bn.bias", f32({3})),
                    mean = in("bn.running_mean", f32({3})), var = in("bn.running_var", f32({3}));
    const ir::Value y = ops::emit(graph, "conv2d", {x, w});
    const ir::Value rstd = ops::emit(graph, "rsqrt", {ops::emit(graph, "add", {var, graph.constant(1e-5, f32({}))})});
    const ir::Value normal = ops::emit(graph, "normalize", {y, mean, rstd, gamma, beta});
    graph.output("y", ops::emit(graph, "reduce", {normal}, {{"kind", "mean"}, {"axes", ir::Ints{1, 2}}}));
    return graph;
  }
};

TEST_F(Folding, GivesWhatTheFormulaSays) {
  step::Tensors inputs{{"x", values(f32({2, 5, 5, 2}), -0.5)}};
  device::Device& ref = *device_under_test("ref");
  step::Session session(ref, {step::infer_program({model, 2, {}})});
  for (const ir::State& state : session.states()) {
    if (state.attrs.flag("derived")) continue;
    inputs[state.name] = values(state.type, 0.3);
    session.set(state.name, inputs[state.name]);
  }
  step::Batch& batch = session.next_batch();
  for (size_t i = 0; i < inputs["x"].size(); ++i) batch.f32("x")[i] = static_cast<float>(inputs["x"][i]);
  session.run(0, batch);
  const std::vector<double> found = session.output_double(0, "logits"),
                            expected = step::run_once(ref, by_formula(), inputs).at("y");
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-6) << i;
}

TEST_F(Folding, CostsNoLaunchInARun) {
  if (!device_under_test("cpu")) GTEST_SKIP();
  const auto compiled = step::compile({step::evaluate_program({model, 2, {}})}, *device_under_test("cpu"), {});
  for (const device::LaunchSpec& launch : compiled.programs[0].launches)
    EXPECT_TRUE(launch.node.op != "fused" && launch.node.op != "normalize" && launch.node.op != "mul")
        << launch.node.op;
}

}  // namespace
}  // namespace situ::test
