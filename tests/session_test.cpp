// session_test.cpp -- programs that share states and an arena: interleaved like apart, never a stale panel, every
// residency the same result, and nothing that depends on threads or padding.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "harness.h"
#include "io/safetensors.h"
#include "ir/text.h"
#include "model/init.h"
#include "step/devices.h"
#include "step/programs.h"
#include "step/run.h"
#include "train/weights.h"

namespace situ::test {
namespace {

using step::Batch;
using step::ProgramSpec;
using step::Session;

constexpr int64_t kBatch = 8;
const std::vector<std::string> kPrograms = {"train", "micro", "apply", "evaluate", "infer"};

std::vector<ir::Graph> programs(const ProgramSpec& spec, const std::vector<std::string>& names) {
  std::vector<ir::Graph> list;
  for (const std::string& name : names) list.push_back(step::program_by_name(spec, name));
  return list;
}

float noise(uint64_t i) { return static_cast<float>((i * 2654435761u >> 8) % 2001) * 1e-3f - 1.0f; }

using States = std::map<std::string, std::vector<double>>;

// Bit for bit; says where, not everything.
void expect_same(const States& a, const States& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (const auto& [name, values] : a) {
    const std::vector<double>& others = b.at(name);
    ASSERT_EQ(values.size(), others.size()) << what << " " << name;
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], others[i]) << what << " " << name << " " << i;
  }
}

class Fixture {
 public:
  Fixture(device::Device& device, const std::string& model_name, const std::vector<std::string>& names,
          step::Residency residency = step::Residency::resident, int64_t batch = kBatch, bool fuse = true)
      : model(model::find_model(model_name)),
        session(device, programs({model, batch, {}}, names), options(residency, fuse)),
        rows(batch) {
    reset(1);
  }
  void reset(uint64_t seed) {
    for (const ir::State& s : session.states())
      if (!s.attrs.flag("derived")) session.set(s.name, model::initial_values(s, seed));
  }
  // Rows first.. of an endless made-up data set; those from `valid` on are padding.
  Batch& batch(uint64_t first, int64_t valid, int64_t total, float keep = 0) {
    Batch& b = session.next_batch();
    const auto x = b.f32("x");
    const auto features = static_cast<uint64_t>(x.size()) / static_cast<uint64_t>(rows);
    for (size_t i = 0; i < x.size(); ++i) x[i] = noise(first * features + i);
    if (session.has_program("train") || session.has_program("micro") || session.has_program("evaluate")) {
      const auto labels = b.i32("labels");
      const auto weight = b.f32("weight");
      for (size_t i = 0; i < labels.size(); ++i) {
        labels[i] = static_cast<int32_t>((first + i) * 7 % static_cast<uint64_t>(model.classes));
        weight[i] = static_cast<int64_t>(i) < valid ? 1.0f : 0.0f;
      }
    }
    b.set("lr", 0.05f);
    b.set("scale", 1.0f / static_cast<float>(total));
    b.set("keep", keep);
    b.set("micro", static_cast<int32_t>(keep));
    b.set("seed", int32_t{5});
    return b;
  }
  void run(const std::string& program, uint64_t first, int64_t total = kBatch, float keep = 0) {
    session.run(session.program(program), batch(first, rows, total, keep));
  }
  std::vector<double> logits(uint64_t first) {
    run("infer", first);
    return session.output_double(session.program("infer"), "logits");
  }
  States states(const std::string& role) {
    States result;
    for (const ir::State& s : session.states())
      if (model::has_role(s, role)) result[s.name] = session.get_double(s.name);
    return result;
  }

  model::Model model;
  Session session;
  int64_t rows;

 private:
  static step::SessionOptions options(step::Residency residency, bool fuse) {
    step::SessionOptions o;
    o.residency = residency;
    o.compile.fuse = fuse;
    return o;
  }
};

class Sessions : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!device_under_test(GetParam())) GTEST_SKIP() << "left out by SITU_TEST_DEVICES";
  }
  device::Device& device() { return *device_under_test(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Devices, Sessions, testing::Values("ref", "cpu", "opencl"),
                         [](const auto& instance) { return instance.param; });

TEST_P(Sessions, InterleavedProgramsGiveWhatSeparateRunsGive) {
  Fixture all(device(), "lenet5", kPrograms);
  Fixture train(device(), "lenet5", {"train"}), accumulate(device(), "lenet5", {"micro", "apply"}),
      other(device(), "lenet5", {"evaluate", "infer"});
  auto copy_parameters = [](Fixture& from, Fixture& to) {
    for (const auto& [name, values] : from.states("parameter")) to.session.set(name, values);
    for (const auto& [name, values] : from.states("slot"))
      if (to.session.compiled().memory.find_state(name)) to.session.set(name, values);
  };
  for (uint64_t round = 0; round < 3; ++round) {
    all.run("train", round);
    train.run("train", round);
    expect_same(all.states("parameter"), train.states("parameter"), fmt::format("train, round {}", round));

    copy_parameters(train, other);
    all.run("evaluate", round + 50);
    other.run("evaluate", round + 50);
    EXPECT_EQ(all.session.get(step::kEvalMetrics), other.session.get(step::kEvalMetrics))
        << "evaluate, round " << round;
    EXPECT_EQ(all.logits(round + 90), other.logits(round + 90)) << "infer, round " << round;

    copy_parameters(train, accumulate);
    for (Fixture* f : {&all, &accumulate}) {
      f->run("micro", 7 * round, 2 * kBatch, 0);
      if (f == &all) f->run("infer", 3);  // in between, over the same arena
      f->run("micro", 7 * round + 1, 2 * kBatch, 1);
      f->run("apply", 0);
    }
    expect_same(all.states("parameter"), accumulate.states("parameter"), fmt::format("accumulation, round {}", round));
    copy_parameters(accumulate, train);
  }
}

// Gradients of two halves accumulated = gradient of the whole, up to rounding of one sum.
TEST_P(Sessions, AccumulationEqualsOneLargeBatch) {
  Fixture halves(device(), "mlp:20-12-5", {"micro", "apply"});
  Fixture whole(device(), "mlp:20-12-5", {"train"}, step::Residency::resident, 2 * kBatch);
  for (uint64_t step = 0; step < 3; ++step) {
    halves.run("micro", 16 * step, 2 * kBatch, 0);
    halves.run("micro", 16 * step + 8, 2 * kBatch, 1);
    halves.run("apply", 0);
    whole.run("train", 16 * step, 2 * kBatch);
  }
  const auto a = halves.states("parameter"), b = whole.states("parameter");
  for (const auto& [name, values] : a)
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], b.at(name)[i], 2e-6) << name << " " << i;
}

std::string model_with_dropout() {
  const std::string path = scratch_folder() + "/dropout.json";
  write_file_atomic(path,
                    "{\"input\": [20], \"classes\": 5, \"layers\": [{\"name\": \"a\", \"kind\": \"linear\", "
                    "\"channels\": 12}, {\"kind\": \"relu\"}, {\"name\": \"drop\", \"kind\": \"dropout\"}, "
                    "{\"name\": \"b\", \"kind\": \"linear\", \"channels\": 5}]}");
  return path;
}

void expect_near(const States& a, const States& b) {
  for (const auto& [name, values] : a)
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], b.at(name)[i], 2e-6) << name << " " << i;
}

TEST_P(Sessions, DropoutMasksAreTheSameFusedAndNot) {
  Fixture fused(device(), model_with_dropout(), {"train"}),
      plain(device(), model_with_dropout(), {"train"}, step::Residency::resident, kBatch, false);
  for (uint64_t step = 0; step < 3; ++step)
    for (Fixture* f : {&fused, &plain}) f->run("train", 8 * step);
  expect_near(fused.states("parameter"), plain.states("parameter"));
}

TEST_P(Sessions, DropoutMasksAreTheSameInMicroBatches) {
  Fixture halves(device(), model_with_dropout(), {"micro", "apply"});
  Fixture whole(device(), model_with_dropout(), {"train"}, step::Residency::resident, 2 * kBatch);
  for (uint64_t step = 0; step < 3; ++step) {
    halves.run("micro", 16 * step, 2 * kBatch, 0);
    halves.run("micro", 16 * step + 8, 2 * kBatch, 1);
    halves.run("apply", 0);
    whole.run("train", 16 * step, 2 * kBatch);
  }
  expect_near(halves.states("parameter"), whole.states("parameter"));
}

TEST_P(Sessions, PaddingChangesNothing) {
  Fixture padded(device(), "mlp:20-12-5", {"train"}, step::Residency::resident, 11),
      exact(device(), "mlp:20-12-5", {"train"});
  for (uint64_t step = 0; step < 3; ++step) {
    padded.session.run(0, padded.batch(10 * step, kBatch, kBatch));
    exact.session.run(0, exact.batch(10 * step, kBatch, kBatch));
  }
  EXPECT_EQ(padded.session.get(step::kTrainMetrics)[2], 3.0f * kBatch);
  const auto a = padded.states("parameter"), b = exact.states("parameter");
  for (const auto& [name, values] : a)
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], b.at(name)[i], 2e-6) << name << " " << i;
}

// Whatever writes parameters, the next run sees panels made from them: setting, loading, rolling back, applying.
TEST_P(Sessions, NoStalePanelAfterSetting) {
  Fixture used(device(), "lenet5", kPrograms), fresh(device(), "lenet5", {"infer"});
  used.logits(1);
  used.reset(5);
  fresh.reset(5);
  EXPECT_EQ(used.logits(1), fresh.logits(1));
}

TEST_P(Sessions, NoStalePanelAfterLoading) {
  Fixture used(device(), "lenet5", kPrograms), other(device(), "lenet5", kPrograms);
  other.reset(9);
  const std::string path = scratch_folder() + "/" + GetParam() + ".safetensors";
  train::save_weights(other.session, path, {});
  used.logits(1);
  train::load_weights(used.session, path);
  EXPECT_EQ(used.logits(1), other.logits(1));
}

TEST_P(Sessions, NoStalePanelAfterRollingBack) {
  Fixture used(device(), "lenet5", kPrograms);
  const auto before = used.logits(1);
  const auto kept = used.states("parameter");
  used.run("train", 3);
  EXPECT_NE(used.logits(1), before);
  for (const auto& [name, values] : kept) used.session.set(name, values);
  EXPECT_EQ(used.logits(1), before);
}

TEST_P(Sessions, NoStalePanelAfterApplying) {
  Fixture used(device(), "lenet5", kPrograms), fresh(device(), "lenet5", {"infer", "micro"});
  used.logits(1);
  used.run("micro", 2);
  used.run("apply", 0);
  for (const auto& [name, values] : used.states("parameter")) fresh.session.set(name, values);
  EXPECT_EQ(used.logits(1), fresh.logits(1));
  used.run("micro", 4);  // its gradients use panels as well
  fresh.run("micro", 4);
  expect_same(used.states("accumulator"), fresh.states("accumulator"), "accumulator");
}

TEST_P(Sessions, EveryResidencyTrainsAlikeAndTheLedgerIsWhatHappens) {
  Fixture resident(device(), "lenet5", {"train"});
  for (uint64_t step = 0; step < 3; ++step) resident.run("train", step);
  for (step::Residency residency : {step::Residency::weights, step::Residency::naive, step::Residency::resident}) {
    Fixture f(device(), "lenet5", {"train"}, residency);
    const step::Ledger ledger = f.session.ledger(0);
    for (uint64_t step = 0; step < 3; ++step) {
      Batch& batch = f.batch(step, kBatch, kBatch);
      const device::Counters before = f.session.device().counters();
      f.session.run(0, batch);
      const device::Counters after = f.session.device().counters();
      EXPECT_EQ(after.launches - before.launches, ledger.launches) << name_of(residency);
      EXPECT_EQ(after.bytes_in - before.bytes_in, ledger.bytes_in) << name_of(residency);
      EXPECT_EQ(after.bytes_out - before.bytes_out, ledger.bytes_out) << name_of(residency);
      if (residency != step::Residency::resident) {
        EXPECT_EQ(after.waits - before.waits, ledger.waits) << name_of(residency);
      }
    }
    const auto a = resident.states("parameter"), b = f.states("parameter");
    for (const auto& [name, values] : a)
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(values[i], b.at(name)[i], 1e-5) << name_of(residency) << " " << name << " " << i;
  }
}

TEST_P(Sessions, TheSameRunTwiceIsBitIdentical) {
  Fixture a(device(), "lenet5", {"train"}), b(device(), "lenet5", {"train"});
  for (uint64_t step = 0; step < 4; ++step) {
    a.run("train", step);
    b.run("train", step);
  }
  expect_same(a.states("parameter"), b.states("parameter"), "parameter");
  EXPECT_EQ(a.session.get(step::kTrainMetrics), b.session.get(step::kTrainMetrics));
}

// An input is not mapped for the next batch as long as it is still to be read.
TEST_P(Sessions, AnInputMayBeAnOutput) {
  Session session(device(), {ir::parse("program p\n%0 = input() {name=\"x\"} : f32[4,3]\n%1 = neg(%0) : f32[4,3]\n"
                                       "output(%0) {name=\"same\"}\noutput(%1) {name=\"y\"}\n")});
  for (int step = 1; step < 6; ++step) {
    Batch& batch = session.next_batch();
    for (float& v : batch.f32("x")) v = static_cast<float>(step);
    session.run(0, batch);
    EXPECT_EQ(session.output(0, "same"), std::vector<float>(12, static_cast<float>(step)));
    EXPECT_EQ(session.output(0, "y"), std::vector<float>(12, static_cast<float>(-step)));
  }
}

// Steps in flight, one being written, and one that was asked for and left: each run reads its own batch.
TEST_P(Sessions, BatchesAreKeptApart) {
  Session session(device(), {ir::parse("program p\nstate total : f32[4,3]\n%0 = input() {name=\"x\"} : f32[4,3]\n"
                                       "%1 = read() {state=\"total\"} : f32[4,3]\n%2 = add(%1, %1) : f32[4,3]\n"
                                       "%3 = add(%2, %0) : f32[4,3]\nwrite(%3) {state=\"total\"}\n")});
  session.set("total", std::vector<float>(12, 0));
  double expected = 0;
  Batch* ahead = &session.next_batch();
  for (int step = 0; step < 20; ++step) {  // the next one is asked for before this one runs
    Batch* batch = ahead;
    for (float& v : batch->f32("x")) v = static_cast<float>(step % 3);
    if (step == 11) session.next_batch();
    ahead = &session.next_batch();
    session.run(0, *batch);
    expected = 2 * expected + step % 3;
  }
  EXPECT_EQ(session.get_double("total"), std::vector<double>(12, expected));
}

TEST_P(Sessions, ABatchRunsOnce) {
  Fixture f(device(), "mlp:4-3", {"infer"});
  Batch& batch = f.batch(0, kBatch, kBatch);
  f.session.run(0, batch);
  EXPECT_THROW(f.session.run(0, batch), Error);
  EXPECT_THROW(batch.f32("x"), Error);
}

// Piece by piece, which a parameter of 784 x 512 takes two of, as all at once.
TEST_P(Sessions, BeginWithTheirInitialValues) {
  Fixture f(device(), "mlp:784-512-16", {"train"});
  step::set_initial_values(f.session, 3);
  for (const ir::State& state : f.session.states()) {
    if (state.attrs.flag("derived")) continue;
    EXPECT_EQ(f.session.get(state.name), model::initial_values(state, 3)) << state.name;
  }
}

TEST(Threads, DoNotChangeResults) {
  std::vector<States> results;
  for (int threads : {1, 2, 3}) {
    device::DeviceOptions options;
    options.threads = threads;
    const auto device = step::open_device("cpu", options);
    Fixture f(*device, "lenet5", {"train"});
    for (uint64_t step = 0; step < 4; ++step) f.run("train", step);
    results.push_back(f.states("parameter"));
  }
  expect_same(results[0], results[1], "two threads");
  expect_same(results[0], results[2], "three threads");
}

TEST(Session, MistakesAreExplained) {
  const auto device = step::open_device("ref");
  Fixture f(*device, "mlp:4-3", {"infer"});
  EXPECT_THROW(f.session.set("nothing", std::vector<float>(3)), Error);
  EXPECT_THROW(f.session.set("fc1.bias", std::vector<float>(4)), Error);
  EXPECT_THROW(f.session.set_part("fc1.bias", 1, std::vector<float>(3)), Error);
  EXPECT_THROW(f.session.program("train"), Error);
  EXPECT_THROW(f.session.output(0, "nothing"), Error);
  EXPECT_THROW(f.session.next_batch().f32("nothing"), Error);
}

}  // namespace
}  // namespace situ::test
