// storage_test.cpp -- activations stored as half: which values are, what rounding does, and that training goes on as it
// does with floats. Kernels themselves: kernel_test.cpp.
#include <gtest/gtest.h>

#include <cmath>

#include "base/half.h"
#include "harness.h"
#include "ir/text.h"
#include "model/init.h"
#include "plan/plan.h"
#include "step/devices.h"
#include "step/programs.h"
#include "step/run.h"
#include "step/session.h"

namespace situ::test {
namespace {

class Halves : public testing::Test {
 protected:
  void SetUp() override {
    if (!device_under_test("opencl")) GTEST_SKIP() << "left out by SITU_TEST_DEVICES";
    device().activations = DType::f16;
  }
  void TearDown() override {
    if (device_under_test("opencl")) device().activations = DType::f32, device().left_out.clear();
  }
  static device::Device& device() { return *device_under_test("opencl"); }
};

// --- which values ---------------------------------------------------------------------------------------------------
// The dtypes of the results of the nodes with these ops, before lowering.
std::string stored(const std::string& text, const std::vector<std::string>& ops, const device::Device& device) {
  const ir::Graph graph = ir::parse("program p\n" + text);
  const std::vector<Type> types = plan::lower(graph, device).types;
  std::string found;
  for (const std::string& op : ops)
    for (const ir::Node& node : graph.nodes)
      if (node.op == op)
        for (ir::Value v : node.outputs)
          found += (found.empty() ? "" : " ") + std::string(name_of(types[static_cast<size_t>(v)].dtype));
  return found;
}

const std::string kX = "%0 = input {name=\"x\"} : f32[4,6]\n";

TEST_F(Halves, AreWhatLiesBetweenLaunches) {
  const std::string text = kX + "%1 = exp(%0) : f32[4,6]\n%2 = relu(%1) : f32[4,6]\noutput(%2) {name=\"y\"}\n";
  EXPECT_EQ(stored(text, {"input", "exp", "relu"}, device()), "f32 f16 f32");
  device().activations = DType::f32;
  EXPECT_EQ(stored(text, {"input", "exp", "relu"}, device()), "f32 f32 f32");
}

TEST_F(Halves, AreNeverStatesNorWhatOnlyDependsOnThem) {
  EXPECT_EQ(stored("state w : f32[4,6] {}\n" + kX +
                       "%1 = read {state=\"w\"} : f32[4,6]\n%2 = exp(%1) : f32[4,6]\n%3 = mul(%2, %0) : f32[4,6]\n"
                       "%4 = add(%3, %1) : f32[4,6]\nwrite(%4) {state=\"w\"}\n",
                   {"exp", "mul", "add"}, device()),
            "f32 f16 f32");
}

TEST_F(Halves, AreNoStatisticsAndNoPartialSums) {
  EXPECT_EQ(stored(kX + "%1 = exp(%0) : f32[4,6]\n%2, %3, %4 = moments(%1) {eps=1.0e-5} : f32[6], f32[6], f32[6]\n"
                        "%5 = reduce(%1) {kind=\"sum\", axes=[0]} : f32[6]\n%6 = add(%5, %2) : f32[6]\n"
                        "%7 = mul(%6, %3) : f32[6]\n%8 = sub(%1, %7) : f32[4,6]\noutput(%8) {name=\"y\"}\n",
                   {"exp", "moments", "reduce", "add"}, device()),
            "f16 f32 f32 f32 f32 f32");
}

TEST_F(Halves, GoTogetherWhereValuesShareMemory) {
  const std::string head = kX +
                           "%1 = exp(%0) : f32[4,6]\n%2, %3 = split(%1) {axis=1, sizes=[2,4]} : f32[4,2], f32[4,4]\n"
                           "%4 = relu(%2) : f32[4,2]\n%5 = neg(%4) : f32[4,2]\noutput(%5) {name=\"y\"}\n";
  EXPECT_EQ(stored(head + "%6 = neg(%3) : f32[4,4]\noutput(%6) {name=\"z\"}\n", {"exp", "split", "relu"}, device()),
            "f16 f16 f16 f16");
  EXPECT_EQ(stored(head + "output(%3) {name=\"z\"}\n", {"exp", "split", "relu"}, device()), "f32 f32 f32 f16");
}

TEST_F(Halves, AreLeftOutWhereTheSelfTestLeftThemOut) {
  const std::string text =
      kX + "%1 = exp(%0) : f32[4,6]\n%2 = relu(%1) : f32[4,6]\n%3 = neg(%2) : f32[4,6]\noutput(%3) {name=\"y\"}\n";
  EXPECT_EQ(stored(text, {"exp", "relu"}, device()), "f16 f16");
  const ir::Graph graph = ir::parse("program p\n" + text);
  const ops::OpView view = plan::stored_view(graph, node_of(graph, "relu"), plan::lower(graph, device()).types);
  device().left_out[plan::unit_of(device(), view, nullptr)] = "wrong";
  EXPECT_EQ(stored(text, {"exp", "relu"}, device()), "f32 f32");
}

// A result of 2 bytes in the memory of an operand of 4, or the other way round, would overtake what is still to be
// read.
TEST_F(Halves, AreNotTakenOverByFloats) {
  const std::string text = kX + "%1 = exp(%0) : f32[4,6]\n%2 = relu(%1) : f32[4,6]\noutput(%2) {name=\"y\"}\n";
  for (const ir::Node& node : plan::lower(ir::parse("program p\n" + text), device()).graph.nodes)
    EXPECT_FALSE(node.attrs.has("may_alias")) << ir::to_string(node.attrs);
}

TEST_F(Halves, ArePrintedAndParsed) {
  const ir::Graph graph = plan::lower(ir::parse("program p\n" + kX +
                                                "%1 = exp(%0) : f32[4,6]\n%2 = relu(%1) : f32[4,6]\n"
                                                "output(%2) {name=\"y\"}\n"),
                                      device())
                              .graph;
  const std::string text = ir::print(graph);
  EXPECT_NE(text.find(": f16[4,6]"), std::string::npos) << text;
  EXPECT_EQ(ir::print(ir::parse(text)), text);
}

// --- rounding -------------------------------------------------------------------------------------------------------
TEST(Half, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(rounded_to_half(1 + 0x1p-11), 1);
  EXPECT_EQ(rounded_to_half(1 + 3 * 0x1p-11), 1 + 0x1p-9);
  EXPECT_EQ(rounded_to_half(0x1p-25), 0);
  EXPECT_EQ(rounded_to_half(0x1.8p-25), 0x1p-24);
  EXPECT_EQ(rounded_to_half(65519), 65504);
  EXPECT_EQ(rounded_to_half(-65520), -INFINITY);
  EXPECT_EQ(rounded_to_half(65504), 65504);
}

TEST_F(Halves, RoundOnTheDeviceAsOnTheHost) {
  std::vector<double> x;
  for (double base : {1.0, 1.5, 0x1p-14, 0x1p-20, 1000.0, 65504.0})
    for (double step : {0.0, 0x1p-11, 0x1.2p-11, 3 * 0x1p-11, 0x1p-12, 0x1p-10, -0x1p-11})
      for (double sign : {1.0, -1.0}) x.push_back(static_cast<double>(static_cast<float>(sign * base * (1 + step))));
  x.insert(x.end(), {0, 0x1p-24, 0x1p-25, 0x1.8p-25, 0x1p-26, 65519, 65520, 1e30, INFINITY, -INFINITY, 3.5, 7});
  ASSERT_EQ(x.size() % 6, 0u);
  const auto rows = static_cast<int64_t>(x.size() / 6);
  for (int copies : {2, 3}) {  // the middle one of three moves halves as they are
    ir::Graph graph;
    graph.name = "p";
    ir::Value v = graph.input("x", f32({rows, 6}));
    for (int i = 0; i < copies; ++i) v = ops::emit(graph, "copy", {v});
    graph.output("y", v);
    const auto y = step::run_once(device(), graph, {{"x", x}}).at("y");
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], rounded_to_half(x[i])) << x[i];
  }
}

// --- training -------------------------------------------------------------------------------------------------------
float noise(uint64_t i) { return static_cast<float>((i * 2654435761u >> 8) % 2001) * 1e-3f - 1.0f; }

struct Training {
  Training(device::Device& device, const std::string& name, model::Optimizer optimizer = {}, int64_t batch = 16)
      : model(model::find_model(name)) {
    optimizer.scales_loss = device.activations == DType::f16;
    session =
        std::make_unique<step::Session>(device, std::vector<ir::Graph>{step::train_program({model, batch, optimizer})});
    for (const ir::State& s : session->states())
      if (!s.attrs.flag("derived")) session->set(s.name, model::initial_values(s, 1));
  }
  // Always the same few samples, so that the loss falls.
  void step(int steps = 1) {
    for (int i = 0; i < steps; ++i) {
      step::Batch& b = session->next_batch();
      const auto x = b.f32("x");
      for (size_t k = 0; k < x.size(); ++k) x[k] = noise(k);
      const auto labels = b.i32("labels");
      const auto weight = b.f32("weight");
      for (size_t k = 0; k < labels.size(); ++k) {
        labels[k] = static_cast<int32_t>(k * 7 % static_cast<size_t>(model.classes));
        weight[k] = 1;
      }
      b.set("lr", 0.1f);
      b.set("scale", 1.0f / static_cast<float>(labels.size()));
      session->run(0, b);
    }
  }
  double loss() { return static_cast<double>(session->get(step::kTrainMetrics)[3]); }
  float scalar(const std::string& state) { return session->get(state)[0]; }
  std::vector<std::vector<float>> parameters() {
    std::vector<std::vector<float>> all;
    for (const ir::State& s : session->states())
      if (model::has_role(s, "parameter") || model::has_role(s, "slot")) all.push_back(session->get(s.name));
    return all;
  }
  int64_t halves() const {
    int64_t count = 0;
    for (const ir::ValueInfo& value : session->compiled().programs[0].graph.values)
      count += value.type.dtype == DType::f16;
    return count;
  }

  model::Model model;
  std::unique_ptr<step::Session> session;
};

// Each value stored as half adds at most one relative rounding of 2^-11 to the loss or to a gradient, and what all
// gradients together do to the loss is at most what it fell by: so to first order the loss may differ by 2^-11 of the
// first loss for each of them.
TEST_F(Halves, TrainToTheLossThatFloatsTrainTo) {
  for (const char* model : {"lenet5", "mlp:784-64-10"}) {
    Training half(device(), model);
    device().activations = DType::f32;
    Training whole(device(), model);
    device().activations = DType::f16;
    whole.step();
    const double first = whole.loss();
    whole.step(19);
    half.step(20);
    const double most = static_cast<double>(half.halves()) * 0x1p-11 * first;
    EXPECT_GE(half.halves(), 3) << model << ": the mlp has an activation and two gradients to store";
    EXPECT_LT(whole.loss(), first - most) << model << " has learnt enough to tell";
    EXPECT_NEAR(half.loss(), whole.loss(), most) << model;
  }
}

TEST_F(Halves, TrainToTheSameBitsAgain) {
  Training a(device(), "lenet5"), b(device(), "lenet5");
  a.step(5);
  b.step(5);
  EXPECT_EQ(a.parameters(), b.parameters());
}

// Every activation and gradient of this network passes through kernels that take halves.
TEST_F(Halves, TakeLessMemory) {
  const model::Model model = model::find_model("resnet20");
  const auto arena = [&](DType activations) {
    device().activations = activations;
    return step::compile({step::train_program({model, 16, {}})}, device(), {}).programs[0].plan.arena_bytes();
  };
  const int64_t whole = arena(DType::f32), half = arena(DType::f16);
  EXPECT_LT(static_cast<double>(half), 0.65 * static_cast<double>(whole)) << half << " of " << whole;
}

// --- loss scaling ---------------------------------------------------------------------------------------------------
TEST_F(Halves, SkipAStepWhoseGradientsOverflow) {
  Training t(device(), "lenet5", model::default_optimizer(model::Optimizer::adam));
  t.step();
  EXPECT_EQ(t.scalar("optimizer.step"), 1);
  EXPECT_EQ(t.scalar("loss_scale.good"), 1);
  const float scale = t.scalar("loss_scale");
  const auto before = t.parameters();
  t.session->set("loss_scale", std::vector<float>{0x1p60f});
  t.step();
  EXPECT_EQ(t.parameters(), before);
  EXPECT_EQ(t.scalar("loss_scale"), 0x1p59f);
  EXPECT_EQ(t.scalar("loss_scale.good"), 0);
  EXPECT_EQ(t.scalar("optimizer.step"), 1);
  t.session->set("loss_scale", std::vector<float>{scale});
  t.step();
  EXPECT_NE(t.parameters(), before);
  EXPECT_EQ(t.scalar("optimizer.step"), 2);
}

TEST_F(Halves, DoubleTheScaleAfterManyGoodSteps) {
  Training t(device(), "mlp:784-64-10");
  const float scale = t.scalar("loss_scale");
  t.session->set("loss_scale.good", std::vector<float>{498});
  t.step();
  EXPECT_EQ(t.scalar("loss_scale"), scale);
  t.step();
  EXPECT_EQ(t.scalar("loss_scale"), 2 * scale);
  EXPECT_EQ(t.scalar("loss_scale.good"), 0);
}

// What a candidate makes of an operand on the way (turned, padded, interleaved) is as exact as the operand: here all
// enter and leave as floats, so the bits are those of a device that stores floats.
TEST_F(Halves, AreNotMadeOfAnOperandInsideACandidate) {
  struct Case {
    const char *op, *a, *b, *attrs;
  };
  for (const Case& c : {Case{"matmul", "f32[32,16]", "f32[32,24]", "{ta=1}"},
                        {"conv2d", "f32[8,12,12,6]", "f32[5,5,6,16]", "{pad=[2,2,2,2], stride=[1,1]}"}}) {
    ir::Graph graph;
    const ir::Values in{graph.input("a", ir::parse_type(c.a)), graph.input("b", ir::parse_type(c.b))};
    graph.output("y", ops::emit(graph, c.op, in, ir::parse_attrs(c.attrs)));
    step::Tensors inputs;
    for (size_t n = 0; n < in.size(); ++n)
      for (int64_t i = 0; i < graph.type(in[n]).count(); ++i)
        inputs[n == 0 ? "a" : "b"].push_back(static_cast<float>(i * 7919 % 1009) / 1009 - 0.5f);
    const ops::OpView view = ops::view_of(graph, node_of(graph, c.op));
    for (const device::Candidate* candidate : plan::candidates_for(device(), view)) {
      device().choices = {{device::node_key(view), std::string(candidate->name)}};
      const auto halves = step::run_once(device(), graph, inputs);
      device().activations = DType::f32;
      EXPECT_EQ(halves, step::run_once(device(), graph, inputs)) << view.op << "/" << candidate->name;
      device().activations = DType::f16;
    }
    device().choices.clear();
  }
}

// A power of two rounds nothing where nothing is stored as half: the same bits with and without. Biases alone are
// summed in another order, since what scales looks at their gradients before the update does; so one step, after which
// nothing else has met a bias.
TEST(LossScale, ChangesNothingOnADeviceThatStoresFloats) {
  for (const char* name : {"cpu", "opencl"}) {
    device::Device* device = device_under_test(name);
    if (!device) continue;
    std::vector<std::vector<std::vector<float>>> results;
    for (bool scales : {false, true}) {
      Training t(*device, "mlp:784-64-10");
      model::Optimizer optimizer;
      optimizer.scales_loss = scales;
      t.session = std::make_unique<step::Session>(
          *device, std::vector<ir::Graph>{step::train_program({t.model, 16, optimizer})});
      for (const ir::State& s : t.session->states())
        if (!s.attrs.flag("derived")) t.session->set(s.name, model::initial_values(s, 1));
      t.step(1);
      results.push_back(t.parameters());
    }
    ASSERT_EQ(results[0].size(), results[1].size());
    for (size_t i = 0; i < results[0].size(); ++i)
      if (results[0][i].size() > 64)
        EXPECT_EQ(results[0][i], results[1][i]) << name << ", a weight";
      else
        EXPECT_TRUE(std::ranges::equal(
            results[0][i], results[1][i],
            [](float a, float b) { return std::fabs(a - b) <= 16 * 0x1p-24f * std::max(0.01f, std::fabs(b)); }))
            << name << ", a bias";
  }
}

TEST(Precision, OfACpuIsSingle) {
  device::DeviceOptions options;
  options.activations = DType::f16;
  for (const char* name : {"cpu", "ref"})
    expect_error([&] { step::open_device(name, options); }, "use --device opencl, or --precision fp32");
}

}  // namespace
}  // namespace situ::test
