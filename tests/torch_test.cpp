// torch_test.cpp -- whole training steps against PyTorch, from recorded fixtures (fixtures/README.md).
//
// ref: losses, parameters and slots within 1e-4 relative of PyTorch in float64. Other devices: within 10 times the
// error of PyTorch's own float32 run (of deep models: of the worst of nine such runs), no yardstick being below half a
// unit in the last place.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness.h"
#include "model/init.h"
#include "step/devices.h"
#include "step/programs.h"
#include "step/session.h"

namespace situ::test {
namespace {

using nlohmann::json;

constexpr double kUlp = 0x1p-24;

double generate(uint64_t stream, uint64_t index) {  // the fixtures' own generator
  uint64_t z = stream * 0x9E3779B97F4A7C15u + (index + 1) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  z ^= z >> 31;
  return static_cast<double>(z >> 40) * 0x1p-24;
}

model::Optimizer optimizer_of(const json& j) {
  model::Optimizer o;
  o.kind = model::parse_optimizer(j["kind"].get<std::string>());
  o.decay = j.value("weight_decay", 0.0);
  if (o.kind == model::Optimizer::sgd) {
    o.momentum = j["momentum"];
    o.nesterov = j["nesterov"];
  } else {
    o.beta1 = j["beta1"];
    o.beta2 = j["beta2"];
    o.eps = j["eps"];
  }
  return o;
}

// Dropout draws other numbers here and there: fixtures leave it out.
model::Model model_of(const json& fixture) {
  model::Model model = model::find_model(fixture["model"].get<std::string>());
  if (fixture.value("without_dropout", false))
    std::erase_if(model.layers, [](const model::LayerSpec& layer) { return layer.kind == "dropout"; });
  return model;
}

class Replay {
 public:
  Replay(device::Device& device, const json& fixture)
      : fixture_(fixture),
        exact_(device.target().element_bytes == 8),
        deep_(fixture.value("yardstick", "run") == "spread"),
        model_(model_of(fixture)),
        session_(device, {step::train_program({model_, fixture["batch"], optimizer_of(fixture["optimizer"])})}) {
    for (const ir::State& state : session_.states()) session_.set(state.name, model::initial_values(state, 0));
    for (const json& p : fixture["parameters"]) {
      const ir::State* state = session_.compiled().memory.find_state(p["name"].get<std::string>());
      SITU_ASSERT(state, "fixture parameter {}", p["name"].get<std::string>());
      EXPECT_EQ(model::file_shape(*state), p["shape"].get<std::vector<int64_t>>());
      const double bound = p.contains("bound") ? p["bound"].get<double>() : 1 / std::sqrt(p["fan_in"].get<double>());
      const uint64_t stream = p["stream"];
      const double center = p.value("center", 0.0);
      std::vector<float> values(static_cast<size_t>(state->type.count()));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(center + (2 * generate(stream, i) - 1) * bound);
      session_.set(state->name, model::from_file_order(*state, values));
    }
  }

  void run() {
    const int steps = fixture_["steps"];
    const int last = exact_ ? fixture_.value("ref_steps", steps) : steps;  // ref is slow
    for (int s = 1; s <= last; ++s) {
      step(s);
      for (const json& snapshot : fixture_["snapshots"])
        if (snapshot["step"] == s)
          for (const json& tensor : snapshot["tensors"]) compare(tensor, snapshot["tensors"], s);
    }
    testing::Test::RecordProperty("worst", fmt::format("{:.3g} of the tolerance, {}", worst_.first, worst_.second));
  }

 private:
  void step(int s) {
    step::Batch& batch = session_.next_batch();
    const auto stream = [&](const char* kind) {
      return fixture_["streams"][kind].get<uint64_t>() + static_cast<uint64_t>(s);
    };
    fill_input(batch, stream("input"));
    const auto labels = batch.i32("labels");
    const auto weight = batch.f32("weight");
    const double classes = fixture_["classes"];
    const size_t idle = fixture_["zero_weight_rows"];
    const uint64_t label_stream = stream("label");
    double total = 0;
    for (size_t i = 0; i < labels.size(); ++i) {
      labels[i] = static_cast<int32_t>(generate(label_stream, i) * classes);
      weight[i] = 1;
      if (fixture_["weighted"])
        weight[i] = i + idle >= labels.size()
                        ? 0.0f
                        : static_cast<float>((1 + std::floor(4 * generate(stream("weight"), i))) / 4);
      total += weight[i];
    }
    batch.set("lr", fixture_["optimizer"]["lr"].get<float>());
    batch.set("scale", static_cast<float>(1 / total));
    const std::vector<double> before = session_.get_double(step::kTrainMetrics);
    session_.run(0, batch);
    const std::vector<double> metrics = session_.get_double(step::kTrainMetrics);
    const auto index = static_cast<size_t>(s - 1);
    const double loss = fixture_["loss"][index];
    const double own = deep_ ? fixture_["loss_float32_spread_error"][index].get<double>()
                             : std::fabs(fixture_["loss_float32"][index].get<double>() - loss);
    expect_near(metrics[3], loss, exact_ ? 1e-4 * loss : 10 * std::max(own, kUlp * loss), "loss", s);
    EXPECT_EQ(metrics[1] - before[1], fixture_["correct_weight"][index].get<double>()) << "step " << s;
  }

  void fill_input(step::Batch& batch, uint64_t stream) {
    if (fixture_.contains("tokens")) {
      const double tokens = fixture_["tokens"];
      const auto x = batch.i32("x");
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<int32_t>(generate(stream, i) * tokens);
    } else {
      const auto x = batch.f32("x");
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(2 * generate(stream, i) - 1);
    }
  }

  // Where in the tensor recorded value j lies.
  size_t sampled(size_t j, size_t count) const {
    const size_t samples = fixture_.value("samples", size_t{256});
    if (count <= samples) return j;
    if (!fixture_.contains("sample_stream")) return j * count / samples;
    const double place = static_cast<double>(j) + generate(fixture_["sample_stream"], j);
    return static_cast<size_t>(place * static_cast<double>(count) / static_cast<double>(samples));
  }

  void expect_near(double ours, double theirs, double tolerance, const std::string& what, int s) {
    const double error = std::fabs(ours - theirs) / tolerance;
    if (!(error <= worst_.first)) worst_ = {error, what + " of step " + std::to_string(s)};
    EXPECT_LE(error, 1) << "times the tolerance: " << what << " of step " << s;
  }

  double tolerance_of(const json& tensor) const {
    const double largest = tensor["max_abs"], own = tensor[deep_ ? "float32_spread_error" : "float32_max_error"];
    return exact_ ? 1e-4 * largest : 10 * std::max(own, kUlp * largest);
  }

  // Adam's first step is lr * g / (|g| + eps): beside a gradient of about eps, what rounds the gradient turns the step.
  // How far, for value j of `tensor`, a gradient that is off by its own tolerance moves it.
  double first_step_moves(const json& tensor, const json& tensors, size_t j) const {
    const json& optimizer = fixture_["optimizer"];
    if (tensor["slot"] != "value" || !optimizer["kind"].get<std::string>().starts_with("adam")) return 0;
    for (const json& average : tensors) {
      if (average["name"] != tensor["name"] || average["slot"] != "exp_avg") continue;
      const double rest = 1 - optimizer["beta1"].get<double>(), lr = optimizer["lr"], eps = optimizer["eps"];
      const double g = average["values"][j].get<double>() / rest, off = tolerance_of(average) / rest;
      const auto step = [&](double x) { return lr * x / (std::fabs(x) + eps); };
      return std::max(std::fabs(step(g + off) - step(g)), std::fabs(step(g - off) - step(g)));
    }
    return 0;
  }

  void compare(const json& tensor, const json& tensors, int s) {
    std::string name = tensor["name"];
    if (tensor["slot"] != "value") name += "." + tensor["slot"].get<std::string>();
    const ir::State* state = session_.compiled().memory.find_state(name);
    ASSERT_TRUE(state) << name;
    const std::vector<double> ours = model::to_file_order(*state, session_.get_double(name));
    const std::vector<double> theirs = tensor["values"];
    const double tolerance = tolerance_of(tensor);
    for (size_t j = 0; j < theirs.size(); ++j)
      expect_near(ours[sampled(j, ours.size())], theirs[j],
                  tolerance + (s == 1 ? first_step_moves(tensor, tensors, j) : 0), name, s);
    double sum = 0, squares = 0;
    for (double v : ours) {
      sum += v;
      squares += v * v;
    }
    const double norm = tensor["norm"], count = static_cast<double>(ours.size());
    expect_near(std::sqrt(squares), norm, tolerance * std::sqrt(count), "norm of " + name, s);
    expect_near(sum, tensor["sum"], tolerance * count, "sum of " + name, s);
  }

  const json& fixture_;
  const bool exact_, deep_;
  const model::Model model_;
  step::Session session_;
  std::pair<double, std::string> worst_{0, "nothing"};  // in units of its tolerance
};

struct Case {
  std::string device, fixture;
};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const char* device : {"ref", "cpu", "opencl"})
    for (const char* fixture : {"lenet5_sgd", "lenet5_adamw", "mlp_sgd", "mlp_nesterov", "mlp_adam", "mlp_adamw",
                                "mlp_sgd_weighted", "har_cnn_sgd", "resnet20_sgd", "mobilenetv2_sgd", "unet_small_sgd",
                                "char_lstm_adamw", "gpt_mini_adamw", "vit_tiny_adamw"})
      list.push_back({device, fixture});
  return list;
}

class Torch : public testing::TestWithParam<Case> {};

TEST_P(Torch, TrainsAlike) {
  device::Device* device = device_under_test(GetParam().device);
  if (!device) GTEST_SKIP() << GetParam().device << " is left out by SITU_TEST_DEVICES";
  std::ifstream file(std::filesystem::path(SITU_TEST_DATA) / "fixtures" / (GetParam().fixture + ".json"));
  const json fixture = json::parse(file);
  ASSERT_EQ(fixture["format"], "situ-torch-fixture-1");
  Replay(*device, fixture).run();
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Torch, testing::ValuesIn(cases()),
                         [](const auto& instance) { return instance.param.device + "_" + instance.param.fixture; });

}  // namespace
}  // namespace situ::test
