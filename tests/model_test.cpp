// model_test.cpp -- the zoo by its published sizes, model files by what they print and refuse, and partial training.
#include <gtest/gtest.h>

#include <functional>

#include "base/names.h"
#include "model/init.h"
#include "model/kind.h"
#include "model/model_file.h"
#include "model/net.h"
#include "model/summary.h"
#include "step/programs.h"

namespace situ::model {
namespace {

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Zoo, ParameterCountsAreThePublishedOnes) {
  for (const ZooEntry& entry : zoo_entries()) {
    SCOPED_TRACE(entry.name);
    const Summary summary = summarise(find_model(entry.name));
    EXPECT_GT(summary.parameters, 0);
    EXPECT_EQ(summary.parameters, summary.trained);
    if (entry.parameters) {
      EXPECT_EQ(summary.parameters, entry.parameters);
    }
  }
}

TEST(Zoo, ResolutionAndWidth) {
  EXPECT_EQ(find_model("mobilenetv2@96").input, f32({96, 96, 3}));
  EXPECT_EQ(summarise(find_model("mobilenetv2@96")).parameters, 3504872);
  EXPECT_EQ(summarise(find_model("mobilenetv2@160:0.5")).parameters, 1968680);  // as torchvision counts it
  EXPECT_EQ(find_model("resnet20", Shape{28, 28, 1}, 10).input, f32({28, 28, 1}));
  EXPECT_EQ(find_model("gpt-mini@32").input, i32({32}));
  EXPECT_NE(error_of([] { find_model("lenet5:2"); }).find("no width"), std::string::npos);
  EXPECT_NE(error_of([] { find_model("kws@96"); }).find("no resolution"), std::string::npos);
  EXPECT_NE(error_of([] { find_model("mobilenetv2@x"); }).find("is no resolution"), std::string::npos);
  EXPECT_NE(error_of([] { find_model("resnet2"); }).find("did you mean `resnet20`"), std::string::npos);
}

// As MobileNet rounds: to the nearest multiple, but up where that would lose more than a tenth.
TEST(Zoo, WidthsAreRoundedButNotFarDown) {
  const std::pair<double, int64_t> cases[] = {{16, 8}, {24, 8}, {32, 16}, {40, 16}, {52, 24}, {64, 24}, {96, 32}};
  for (const auto& [channels, expected] : cases) EXPECT_EQ(scaled_channels(channels, 0.35), expected) << channels;
  EXPECT_EQ(scaled_channels(18), 24);
  EXPECT_EQ(scaled_channels(16, 0.6, 4), 12);
}

TEST(ModelFile, TheZooPrintsAndParsesBack) {
  for (const ZooEntry& entry : zoo_entries()) {
    const Model model = find_model(entry.name);
    const std::string text = print_model(model);
    EXPECT_EQ(print_model(parse_model(text, "x")), text) << entry.name;
  }
}

std::string parse_error(const std::string& layers) {
  const std::string text = "{\n\"input\": [8, 8, 1],\n\"classes\": 4,\n\"layers\": [\n" + layers + "\n]}";
  return error_of([&] {
    const Model model = parse_model(text, "net.json");
    summarise(model);
  });
}

TEST(ModelFile, ErrorsPointAtTheLine) {
  const std::string fc = "{\"kind\": \"flatten\"},\n{\"name\": \"fc\", \"kind\": \"linear\", \"channels\": 4}";
  EXPECT_EQ(parse_error(fc), "no error");
  auto expect = [](const std::string& layers, const std::string& part) {
    EXPECT_NE(parse_error(layers).find(part), std::string::npos) << parse_error(layers);
  };
  expect("{\"kind\": \"relu\"},\n{\"kind\": \"convolution\"}",
         "net.json: line 6: there is no layer kind `convolution`");
  expect("{\"kind\": \"conv\"}", "line 5: `channels` is missing");
  expect("{\"kind\": \"conv\", \"channels\": 4, \"strides\": 2}", "line 5: conv has no attribute `strides`");
  expect("{\"kind\": \"conv\", \"channels\": 4, \"kernel\": \"3\"}", "line 5: `kernel` of conv");
  expect("{\"kind\": \"add\", \"inputs\": [\"x\", \"y\"]}", "line 5: layer `add1` (add): its input `y` is no layer");
  expect("{\"kind\": \"relu\", \"name\": \"a\"},\n{\"kind\": \"relu\", \"name\": \"a\"}", "line 6: another layer");
  expect("{\"kind\": \"conv\", \"channels\": 4, \"kernel\": 9}", "line 5: layer `conv1` (conv)");
  expect("{\"kind\": \"relu\"}", "its last axis should be the 4 classes");
  expect("{\"kind\": \"relu\",}", "line 5: this is no JSON");
  expect("7", "a layer is an object");
}

TEST(ModelFile, BranchesByName) {
  const Model model = parse_model(
      "{\"input\": [4, 4, 2], \"classes\": 3, \"layers\": ["
      "{\"name\": \"a\", \"kind\": \"conv\", \"channels\": 5},"
      "{\"name\": \"b\", \"kind\": \"conv\", \"channels\": 5, \"inputs\": [\"x\"]},"
      "{\"kind\": \"concat\", \"inputs\": [\"a\", \"b\"]}, {\"kind\": \"global_pool\"},"
      "{\"name\": \"fc\", \"kind\": \"linear\", \"channels\": 3}]}",
      "net.json");
  EXPECT_EQ(summarise(model).parameters, 2 * (2 * 5 + 5) + 10 * 3 + 3);
}

std::vector<std::string> trained_names(const Model& model, const std::string& what, int64_t lora_rank = 0) {
  step::ProgramSpec spec{model, 2, {}, parse_partial(model, what)};
  spec.partial.lora.rank = lora_rank;
  std::vector<std::string> names;
  for (const ir::Node& node : step::train_program(spec).nodes)
    if (node.op == "write" && node.attrs.text("state").find("momentum_buffer") == std::string::npos &&
        node.attrs.text("state") != step::kTrainMetrics)
      names.push_back(node.attrs.text("state"));
  return names;
}

TEST(Partial, OnlyWhatIsNamedIsTrained) {
  const Model model = find_model("lenet5");
  EXPECT_EQ(trained_names(model, "last"), (std::vector<std::string>{"fc3.weight", "fc3.bias"}));
  EXPECT_EQ(trained_names(model, "conv2.*,fc1.bias"),
            (std::vector<std::string>{"conv2.weight", "conv2.bias", "fc1.bias"}));
  EXPECT_EQ(trained_names(model, "bias").size(), 5u);
  EXPECT_EQ(trained_names(model, "all").size(), 10u);
  EXPECT_NE(error_of([&] { parse_partial(model, "fc9.*"); }).find("no parameter of lenet5 is named `fc9.*`"),
            std::string::npos);
}

// What is frozen costs nothing behind it: no gradient node, no slot.
TEST(Partial, AFrozenPrefixHasNoBackwardPass) {
  const Model model = find_model("lenet5");
  for (const ir::Node& node : step::train_program({model, 2, {}, parse_partial(model, "last")}).nodes)
    EXPECT_TRUE(node.op != "conv2d_dw" && node.op != "conv2d_dx" && node.op != "max_pool_grad") << node.op;
}

TEST(Partial, LoraTrainsItsOwnMatricesAlone) {
  const auto names = trained_names(find_model("mlp:8-4-2"), "all", 2);
  EXPECT_EQ(names, (std::vector<std::string>{"fc1.lora_A.weight", "fc1.lora_B.weight", "fc2.lora_A.weight",
                                             "fc2.lora_B.weight"}));
}

TEST(Names, Patterns) {
  EXPECT_TRUE(matches("layer4.*", "layer4.0.conv1.weight"));
  EXPECT_FALSE(matches("layer4.*", "layer3.0.conv1.weight"));
  EXPECT_TRUE(matches("*.bias", "fc.bias"));
  EXPECT_TRUE(matches("a?c*e", "abcdde"));
  EXPECT_FALSE(matches("a?c", "ac"));
  EXPECT_TRUE(matches("*", ""));
}

}  // namespace
}  // namespace situ::model
