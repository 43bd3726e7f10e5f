// adapt_test.cpp -- trained weights used again: LoRA merged on saving, grown and new heads, averages, cached features;
// losses over numbers; what does not fit together is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "harness.h"
#include "model/init.h"
#include "model/model_file.h"
#include "model/split.h"
#include "train/evaluator.h"
#include "train/trainer.h"

namespace situ::train {
namespace {

class Adapted : public testing::Test {
 protected:
  TemporaryFolder folder;
  data::DatasetPair data = data::load_dataset("synthetic:8x8x1:4:256");
  device::Device& device = *test::device_under_test("cpu");

  static Settings settings() {
    Settings s;
    s.model = "mlp:64-32-4";
    s.batch = 32;
    s.epochs = 2;
    s.schedule.lr = 0.05;
    return s;
  }
  static void use(Settings& s, const model::Partial& partial) {
    s.partial = [partial](const model::Model&) { return partial; };
  }
  std::string save(Trainer& trainer, const Settings& s) {
    const std::string path = folder.file("model.safetensors");
    WeightsInfo info;
    info.model = s.model;
    info.architecture = model::print_model(trainer.model());
    info.classes = trainer.model().classes;
    info.normalisation = trainer.normalisation();
    info.loss = s.loss;
    save_weights(trainer.session(), path, info);
    return path;
  }
  static std::string last_layer(const Trainer& trainer) {
    return model::parse_partial(trainer.model(), "last").patterns.front();
  }
};

TEST_F(Adapted, SavingMergesLoraIntoTheWeights) {
  Settings s = settings();
  model::Partial partial;
  partial.lora = {.rank = 3, .alpha = 6, .targets = {}};
  use(s, partial);
  Trainer trainer(device, data, s);
  const double before = trainer.evaluate(data.test).loss;
  trainer.fit({});
  const Score trained = trainer.evaluate(data.test);
  EXPECT_LT(trained.loss, before - 0.05);
  Evaluator evaluator(device, save(trainer, s), 32);
  const Score loaded = evaluator.evaluate(data.test);
  EXPECT_NEAR(loaded.loss, trained.loss, 1e-5);
  EXPECT_EQ(loaded.accuracy, trained.accuracy);
}

TEST_F(Adapted, AGrownHeadKeepsTheRowsItHad) {
  const Settings s = settings();
  Trainer small(device, data, s);
  small.fit({});
  const std::string path = save(small, s);
  Settings more = s;
  more.model = "mlp:64-32-6";
  Trainer grown(device, data, model::find_model(more.model), more);
  const std::string layer = last_layer(grown);
  const std::string weight = layer.substr(0, layer.size() - 1) + "weight",
                    bias = layer.substr(0, layer.size() - 1) + "bias";
  const std::vector<float> fresh = grown.session().get(weight);
  EXPECT_THROW(load_weights(grown.session(), path), Error);
  load_weights(grown.session(), path, {.grow = true, .leave = {}});
  const std::vector<float> from = small.session().get(weight), to = grown.session().get(weight);
  ASSERT_EQ(from.size(), 32u * 4);
  for (size_t in = 0; in < 32; ++in)
    for (size_t out = 0; out < 6; ++out)
      EXPECT_EQ(to[in * 6 + out], out < 4 ? from[in * 4 + out] : fresh[in * 6 + out]) << in << " " << out;
  for (size_t out = 0; out < 4; ++out) EXPECT_EQ(grown.session().get(bias)[out], small.session().get(bias)[out]);
}

TEST_F(Adapted, ANewHeadLeavesTheRestAsLoaded) {
  const Settings s = settings();
  Trainer first(device, data, s);
  first.fit({});
  const std::string path = save(first, s);
  Settings other = s;
  other.seed = 7;
  Trainer second(device, data, other);
  const std::string head = last_layer(second);
  std::map<std::string, std::vector<float>> fresh;
  for (const ir::State& state : second.session().states()) fresh[state.name] = second.session().get(state.name);
  load_weights(second.session(), path, {.grow = false, .leave = {head}});
  int of_head = 0, of_rest = 0;
  for (const ir::State& state : second.session().states()) {
    if (!model::has_role(state, "parameter")) continue;
    const bool is_head = state.name.starts_with(head.substr(0, head.size() - 1));
    ++(is_head ? of_head : of_rest);
    EXPECT_EQ(second.session().get(state.name), is_head ? fresh[state.name] : first.session().get(state.name))
        << state.name;
  }
  EXPECT_EQ(of_head, 2);
  EXPECT_EQ(of_rest, 2);
}

// ema <- d * ema + (1 - d) * parameter after each update, by hand beside the session's.
TEST_F(Adapted, AveragesAreWhatIsTestedAndSaved) {
  Settings s = settings();
  s.epochs = 1;
  s.batch = 256;  // one step
  s.optimizer.ema = 0.75;
  Trainer trainer(device, data, s);
  std::map<std::string, std::vector<float>> start;
  for (const ir::State& state : trainer.session().states())
    if (model::has_role(state, "parameter")) start[state.name] = trainer.session().get(state.name);
  trainer.fit({});
  const std::string path = save(trainer, s);
  Evaluator evaluator(device, path, 64);
  EXPECT_NEAR(evaluator.evaluate(data.test).loss, trainer.evaluate(data.test).loss, 1e-6);
  Trainer again(device, data, s);
  load_weights(again.session(), path);
  double moved = 0;
  for (const auto& [name, before] : start) {
    const std::vector<float> raw = trainer.session().get(name), saved = again.session().get(name);
    EXPECT_EQ(again.session().get("ema." + name), saved);
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_NEAR(saved[i], 0.75f * before[i] + 0.25f * raw[i], 1e-6) << name << " " << i;
      moved = std::max(moved, std::fabs(static_cast<double>(raw[i]) - before[i]));
    }
  }
  EXPECT_GT(moved, 1e-4);
}

// Training behind cached features takes the same steps as training behind the part that makes them.
TEST_F(Adapted, CachedFeaturesChangeNothingButTheCost) {
  data = data::load_dataset("synthetic:12x12x1:4:200");
  Settings s = settings();
  s.model = "resnet20";
  s.partial = [](const model::Model& model) { return model::parse_partial(model, "last"); };
  Trainer plain(device, data, s);
  s.cache_features = true;
  Trainer cached(device, data, s);
  int caching = 0;
  std::vector<double> losses, cached_losses;
  plain.fit([&](const Progress& p) {
    if (p.epoch_done) losses.push_back(p.loss), losses.push_back(p.test.loss);
  });
  cached.fit([&](const Progress& p) {
    caching += p.caching;
    if (p.epoch_done) cached_losses.push_back(p.loss), cached_losses.push_back(p.test.loss);
  });
  EXPECT_EQ(caching, 7 + 2);  // batches of 32 of the 200 and the 50 samples, once
  ASSERT_EQ(losses.size(), 4u);
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], cached_losses.at(i), 2e-5) << i;
  EXPECT_NEAR(plain.evaluate(data.test).loss, cached.evaluate(data.test).loss, 2e-5);
  EXPECT_LT(cached.step_session().ledger(cached.step_program()).launches * 4,
            plain.session().ledger(plain.step_program()).launches);
}

// Averages are kept behind the cut, begin with the weights that were there, and come back as the model's weights.
TEST_F(Adapted, AveragesAreTakenBehindCachedFeaturesToo) {
  Settings s = settings();
  s.optimizer.ema = 0.9;
  s.partial = [](const model::Model& model) { return model::parse_partial(model, "last"); };
  Trainer first(device, data, settings());
  const std::string path = save(first, s);
  Trainer plain(device, data, s);
  s.cache_features = true;
  Trainer cached(device, data, s);
  for (Trainer* trainer : {&plain, &cached}) {
    load_weights(trainer->session(), path);
    trainer->fit({});
  }
  EXPECT_NEAR(plain.evaluate(data.test).loss, cached.evaluate(data.test).loss, 2e-5);
  Evaluator plain_saved(device, save(plain, s), 64);
  const double loss = plain_saved.evaluate(data.test).loss;
  Evaluator cached_saved(device, save(cached, s), 64);
  EXPECT_NEAR(cached_saved.evaluate(data.test).loss, loss, 2e-5);
}

model::Model parsed(const std::string& layers) {
  return model::parse_model("{\"input\": [4], \"classes\": 2, \"layers\": [" + layers + "]}", "net");
}
const char* kA = "{\"name\": \"a\", \"kind\": \"linear\", \"channels\": 3},";
const char* kB = "{\"name\": \"b\", \"kind\": \"relu\"},";
const char* kC = "{\"name\": \"c\", \"kind\": \"linear\", \"channels\": 2}";

TEST(Splits, CutInFrontOfTheFirstTrainedLayer) {
  const model::Split split = model::split_frozen(parsed(std::string(kA) + kB + kC), {.patterns = {"c.*"}, .lora = {}});
  ASSERT_EQ(split.front.layers.size(), 2u);
  ASSERT_EQ(split.rest.layers.size(), 1u);
  EXPECT_EQ(split.rest.layers[0].name, "c");
  EXPECT_EQ(split.rest.input, f32({3}));
  EXPECT_EQ(split.front.classes, 3);
}
TEST(Splits, CutBeforeARandomLayer) {
  const std::string dropout = "{\"name\": \"d\", \"kind\": \"dropout\", \"p\": 0.5},";
  const model::Split split = model::split_frozen(parsed(kA + dropout + kB + kC), {.patterns = {"c.*"}, .lora = {}});
  EXPECT_EQ(split.front.layers.size(), 1u);
  EXPECT_EQ(split.rest.layers.front().name, "d");
}
TEST(Splits, CutWhereOneValueCrosses) {
  const std::string more =
      "{\"name\": \"e\", \"kind\": \"linear\", \"channels\": 3},"
      "{\"name\": \"s\", \"kind\": \"add\", \"inputs\": [\"a\", \"e\"]},";
  const model::Split inside = model::split_frozen(parsed(kA + more + kC), {.patterns = {"e.*", "c.*"}, .lora = {}});
  EXPECT_EQ(inside.front.layers.size(), 1u);
  EXPECT_EQ(inside.rest.layers[1].inputs, (std::vector<std::string>{"x", "e"}));
  const std::string far =
      "{\"name\": \"e\", \"kind\": \"linear\", \"channels\": 3},"
      "{\"name\": \"f\", \"kind\": \"linear\", \"channels\": 3},"
      "{\"name\": \"s\", \"kind\": \"add\", \"inputs\": [\"a\", \"f\"]},";
  EXPECT_EQ(model::split_frozen(parsed(kA + far + kC), {.patterns = {"f.*"}, .lora = {}}).front.layers.size(), 1u);
}
TEST(Splits, NothingFrozenInFrontIsAnError) {
  EXPECT_THROW(model::split_frozen(parsed(std::string(kA) + kB + kC), {}), Error);
  EXPECT_THROW(model::split_frozen(parsed(std::string(kA) + kB + kC), {.patterns = {"a.*"}, .lora = {}}), Error);
}

TEST(Misfits, ALabelPerSampleDoesNotTrainAModelWithOnePerPlace) {
  auto images = data::load_dataset("synthetic:16x16x3:4:64");
  Settings s;
  s.model = "unet-small@16";
  s.batch = 4;
  EXPECT_THROW(Trainer(*test::device_under_test("cpu"), images, s), Error);
}
TEST(Misfits, ATextDoesNotTrainAClassifier) {
  data::DatasetPair text;
  for (data::Dataset* half : {&text.train, &text.test}) {
    half->name = "text", half->classes = 256;
    half->text.assign(4000, 'a');
  }
  Settings s;
  s.model = "bert-tiny";
  s.batch = 2;
  EXPECT_THROW(Trainer(*test::device_under_test("cpu"), text, s), Error);
}

TEST(Misfits, FeaturesOfATextAreNotKept) {
  data::DatasetPair text;
  for (data::Dataset* half : {&text.train, &text.test}) {
    half->name = "text", half->classes = 256;
    half->text.assign(4000, 'a');
  }
  Settings s;
  s.model = "gpt-mini@16";
  s.batch = 2;
  s.cache_features = true;
  s.partial = [](const model::Model& model) { return model::parse_partial(model, "last"); };
  test::expect_error([&] { Trainer(*test::device_under_test("cpu"), text, s); }, "leave out --cache-features");
}

// y = 3 x0 - 2 x1 + 10 for series of one step.
data::Dataset line_data(int64_t count) {
  data::Dataset d{.name = "line", .count = count, .height = 1, .width = 1, .channels = 2, .classes = 1};
  for (int64_t i = 0; i < count; ++i) {
    const float a = static_cast<float>(i % 17) - 8, b = static_cast<float>(i % 11);
    d.series.insert(d.series.end(), {a, b});
    d.targets.push_back(3 * a - 2 * b + 10);
  }
  return d;
}
class Numbers : public testing::TestWithParam<const char*> {};

TEST_P(Numbers, AreLearntInTheirOwnUnits) {
  data::DatasetPair data{line_data(187), line_data(60)};
  Settings s;
  s.loss.kind = model::parse_loss(GetParam());
  s.batch = 16;
  s.epochs = 30;
  const model::Model line = model::parse_model(
      "{\"input\": [2], \"classes\": 1, \"layers\": [{\"name\": \"y\", \"kind\": \"linear\", "
      "\"channels\": 1}]}",
      "line");
  for (const char* device : {"cpu", "opencl"}) {
    if (!test::device_under_test(device)) continue;
    Trainer trainer(*test::device_under_test(device), data, line, s);
    const Score before = trainer.evaluate(data.test);
    EXPECT_GT(before.mean_absolute, 5);
    trainer.fit({});
    const Score after = trainer.evaluate(data.test);
    EXPECT_LT(after.mean_absolute, 0.5) << device;
    EXPECT_EQ(after.accuracy, 0);
    EXPECT_LT(after.root_mean_square, 0.6) << device;
    EXPECT_GE(after.root_mean_square, after.mean_absolute);
    EXPECT_EQ(after.count, 60);
  }
}
INSTANTIATE_TEST_SUITE_P(Losses, Numbers, testing::Values("mse", "l1", "huber"),
                         [](const auto& p) { return std::string(p.param); });

TEST(Misfits, NumbersNeedTheirLossAndClassesTheirs) {
  data::DatasetPair numbers{line_data(40), line_data(20)};
  Settings s;
  s.model = "mlp:2-1";
  EXPECT_THROW(Trainer(*test::device_under_test("cpu"), numbers, s), Error);
  s.loss.kind = model::Loss::bce;  // targets beyond 0 to 1
  EXPECT_THROW(Trainer(*test::device_under_test("cpu"), numbers, s), Error);
  auto classes = data::load_dataset("synthetic:2x1x1:4:64");
  s.model = "mlp:2-4";
  s.loss.kind = model::Loss::mse;
  EXPECT_THROW(Trainer(*test::device_under_test("cpu"), classes, s), Error);
}

// A class of weight 0 teaches nothing: the same parameters as without its samples in the batch.
TEST(ClassWeights, ScaleWhatASampleTeaches) {
  auto data = data::load_dataset("synthetic:4x4x1:3:32");
  Settings s;
  s.model = "mlp:16-3";
  s.batch = 32;
  s.epochs = 1;
  s.class_weights = {3, 0, 1};  // the weights of all samples do not add up to their number
  Trainer weighted(*test::device_under_test("cpu"), data, s);
  weighted.fit({});
  data::DatasetPair repeated = data;  // class 0 three times, class 1 never
  data::Dataset& d = repeated.train;
  d.images.clear();
  d.labels.clear();
  for (size_t i = 0; i < data.train.labels.size(); ++i)
    for (int n = 0; n < (data.train.labels[i] == 0 ? 3 : data.train.labels[i] == 1 ? 0 : 1); ++n) {
      d.labels.push_back(data.train.labels[i]);
      d.images.insert(d.images.end(), data.train.images.begin() + static_cast<long>(i) * 16,
                      data.train.images.begin() + static_cast<long>(i + 1) * 16);
    }
  d.count = static_cast<int64_t>(d.labels.size());
  s.class_weights = {};
  s.batch = d.count;
  s.normalisation = weighted.normalisation();
  Trainer plain(*test::device_under_test("cpu"), repeated, s);
  plain.fit({});
  for (const ir::State& state : plain.session().states()) {
    if (!model::has_role(state, "parameter")) continue;
    const std::vector<float> a = weighted.session().get(state.name), b = plain.session().get(state.name);
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-6) << state.name << " " << i;
  }
}
TEST(ClassWeights, BalancedOnesMakeClassesCountAlike) {
  data::Dataset d{.name = "few", .count = 5, .height = 1, .width = 1, .channels = 1, .classes = 3};
  d.images = {1, 2, 3, 4, 5};
  d.labels = {0, 0, 0, 0, 2};
  const std::vector<float> w = data::balanced_weights(d);
  EXPECT_FLOAT_EQ(w[0], 5.0f / 12);
  EXPECT_EQ(w[1], 0);
  EXPECT_FLOAT_EQ(w[2], 5.0f / 3);
  EXPECT_THROW(data::Batches(d, 2, {{0}, {1}}, data::Order::as_stored, 0, {1, 1}), Error);
}

}  // namespace
}  // namespace situ::train
