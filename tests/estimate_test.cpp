// estimate_test.cpp -- estimates on machines that were made up: sums, fits, choices and advice without a clock; and the
// study's table held against the constants fitted to a part of it.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "backend/cpu/device.h"
#include "base/error.h"
#include "base/file.h"
#include "estimate/advice.h"
#include "estimate/calibrate.h"
#include "estimate/choice.h"
#include "estimate/least_squares.h"
#include "estimate/paper_device.h"
#include "estimate/phone.h"
#include "estimate/study.h"
#include "step/programs.h"

namespace situ::test {
namespace {

using namespace estimate;  // NOLINT: the room under test

// Everything is free.
Machine free_machine() {
  Machine m;
  m.roofline.peak_flops = m.roofline.copy_in_bandwidth = m.roofline.copy_out_bandwidth = 1e300;
  m.roofline.levels = {{1 << 20, 1e300}};
  for (Class c : all_classes()) m.constants.classes[c] = {};
  return m;
}

ir::Graph lenet_step(int64_t batch = 8) {
  static const model::Model model = model::find_model("lenet5");
  return step::train_program({model, batch, {}});
}

device::Target phone_target() {
  device::Target t;
  t.backend = "opencl";
  t.name = "Adreno(TM) 650";
  t.tuning = device::tuning_for("opencl", t.name);
  return t;
}

TEST(EstimateFit, FindsTheCoefficientsOfExactRows) {
  std::vector<Row> rows;
  for (double x : {1.0, 2.0, 5.0})
    for (double y : {1.0, 3.0}) rows.push_back({{1, x, y}, 2 + 3 * x + 0.5 * y, 1});
  const Triple c = fit_triple(rows, {});
  EXPECT_NEAR(c[0], 2, 1e-9);
  EXPECT_NEAR(c[1], 3, 1e-9);
  EXPECT_NEAR(c[2], 0.5, 1e-9);
}

TEST(EstimateFit, KeepsToBoundsAndLeansOnThePrior) {
  std::vector<Row> rows;
  for (double x : {1.0, 2.0, 5.0}) rows.push_back({{1, x, 0}, 1 + 0.5 * x, 1});
  Prior prior;
  prior.least = {0, 1, 0};
  prior.middle = {0, 0, 7};
  prior.strength = 1e-6;
  const Triple c = fit_triple(rows, prior);
  EXPECT_GE(c[1], 1);
  EXPECT_NEAR(c[2], 7, 1e-6) << "no row tells about the third";
}

TEST(EstimateFit, SlowRowsCountLess) {
  std::vector<Row> rows(20, Row{{1, 0, 0}, 1, 1});
  for (int i = 0; i < 4; ++i) rows.push_back({{1, 0, 0}, 10, 1});
  EXPECT_NEAR(fit_triple(rows, {})[0], 1, 0.05);
}

TEST(EstimateWork, ClassesOfKernels) {
  const std::pair<const char*, Class> expected[] = {{"gemm", Class::product},
                                                    {"matmul_packed", Class::product},
                                                    {"conv_dw_inside", Class::convolution},
                                                    {"conv2d_winograd", Class::winograd},
                                                    {"conv2d_dx_winograd_images", Class::winograd},
                                                    {"winograd_input", Class::arrange},
                                                    {"winograd_small", Class::winograd},
                                                    {"conv2d_depthwise_dx", Class::depthwise},
                                                    {"attention_dkv", Class::attention},
                                                    {"lstm_grad_packed", Class::recurrent},
                                                    {"max_pool_grad", Class::pool},
                                                    {"layer_norm_dx", Class::norm},
                                                    {"norm_sums_partial", Class::norm},
                                                    {"moments_final", Class::norm},
                                                    {"sum_splits", Class::reduce},
                                                    {"pack_rows", Class::arrange},
                                                    {"adam", Class::update},
                                                    {"fused", Class::pointwise},
                                                    {"relu_mask", Class::pointwise}};
  for (const auto& [kernel, kind] : expected) EXPECT_EQ(name_of(class_of(kernel)), name_of(kind)) << kernel;
}

TEST(EstimateWork, CountsWhatTheKernelDoes) {
  device::Target target = phone_target();
  target.tuning.set("gemm.VW", 4);
  device::LaunchSpec gemm{{"gemm", {}, {}, {}}, {}, {{0, 0, 10, f32({32, 10})}}, 640, 100};
  EXPECT_DOUBLE_EQ(work_of(gemm, target).flops, 640 * 12 / 10.0) << "columns are whole vectors";
  gemm.node.attrs = {{"batch", int64_t{36}}, {"m", int64_t{5}}, {"n", int64_t{8}}, {"k", int64_t{3}}};
  EXPECT_DOUBLE_EQ(work_of(gemm, target).flops, 2.0 * 36 * 5 * 8 * 3) << "Winograd's products are its own";
  const device::LaunchSpec tiles{{"conv2d_winograd", {}, {}, {{"out", int64_t{4}}}},
                                 {{0, 0, 3, f32({2, 13, 8, 3})}},
                                 {{0, 0, 5, f32({2, 13, 8, 5})}},
                                 1e9,
                                 100};
  EXPECT_DOUBLE_EQ(work_of(tiles, target).flops, 2.0 * 36 * (2 * 4 * 2) * 3 * 5) << "whole tiles of 36 products";
  const ir::Attrs of_images{{"images", int64_t{4}}, {"out", int64_t{2}}, {"side", int64_t{6}}};
  const device::TensorArg x{0, 0, 12, f32({2, 8, 8, 3 * 4})}, y{0, 0, 20, f32({2, 4, 4, 5 * 4})};
  const double products = 2.0 * 36 * (2 * 4) * (2 * 2) * 3 * 5;  // of eight images, four tiles each
  for (const device::LaunchSpec& launch :
       {device::LaunchSpec{{"conv2d_winograd_images", {}, {}, of_images}, {x}, {y}, 1e9, 100},
        device::LaunchSpec{{"conv2d_dx_winograd_images", {}, {}, of_images}, {y}, {x}, 1e9, 100},
        device::LaunchSpec{
            {"conv2d_dw_winograd_images", {}, {}, of_images}, {x, {0, 0, 5, f32({8, 4, 4, 5})}}, {y}, 1e9, 100}})
    EXPECT_DOUBLE_EQ(work_of(launch, target).flops, products) << launch.node.op;
  device::LaunchSpec pool{{"max_pool_grad", {}, {}, {{"kernel", ir::Ints{3, 3}}, {"stride", ir::Ints{2, 2}}}},
                          {},
                          {{0, 0, 4, f32({1, 8, 8, 4})}},
                          0,
                          100};
  EXPECT_DOUBLE_EQ(work_of(pool, target).flops, 256 * 9 * 4) << "windows that overlap";
  pool.node.attrs.set("stride", ir::Ints{3, 3});
  EXPECT_DOUBLE_EQ(work_of(pool, target).flops, 256 * 9);
}

TEST(Estimate, BooksEveryLaunchCopyAndWait) {
  device::DeviceOptions one;
  one.threads = 1;
  const auto device = cpu::make_device(one);
  const ir::Graph program = lenet_step();
  for (step::Residency residency : {step::Residency::resident, step::Residency::weights, step::Residency::naive}) {
    SCOPED_TRACE(step::name_of(residency));
    step::SessionOptions options;
    options.residency = residency;
    const step::Session session(*device, {program}, options);
    const step::Ledger ledger = session.ledger(0);
    Machine m = free_machine();
    m.roofline.launch_seconds = 1;
    const auto seconds = [&] { return estimate::estimate(program, residency, *device, m); };
    EXPECT_NEAR(seconds().launch, static_cast<double>(ledger.launches), 1e-9);
    EXPECT_EQ(seconds().launches, ledger.launches);
    m.roofline.copy_in_bandwidth = m.roofline.copy_out_bandwidth = 1;
    EXPECT_NEAR(seconds().movement, static_cast<double>(ledger.bytes_in + ledger.bytes_out), 0.01 * seconds().movement);
    m = free_machine();
    m.roofline.wait_seconds = m.roofline.read_seconds = 1;
    EXPECT_NEAR(seconds().wait + seconds().movement, static_cast<double>(ledger.waits), 1e-9);
    EXPECT_EQ(seconds().memory, ledger.arena_bytes + ledger.persistent_bytes);
  }
}

TEST(Estimate, ComputeIsTheSumOfRates) {
  const auto device = make_paper_device(phone_target());
  const ir::Graph program = lenet_step();
  Machine m = free_machine();
  for (Class c : all_classes()) m.constants.classes[c] = {2, 0, 0};
  const Estimate fixed = estimate::estimate(program, step::Residency::resident, *device, m);
  EXPECT_NEAR(fixed.compute, 2.0 * static_cast<double>(fixed.launches), 1e-9);
  for (Class c : all_classes()) m.constants.classes[c] = {0, 4, 0};
  m.roofline.peak_flops = 1e9;
  const Estimate flops = estimate::estimate(program, step::Residency::resident, *device, m);
  EXPECT_GE(flops.compute, 4 * flops.flops / 1e9 * 0.999) << "padding adds, nothing is lost";
  m.constants.scale = 1.5;
  EXPECT_NEAR(estimate::estimate(program, step::Residency::resident, *device, m).compute, 1.5 * flops.compute, 1e-12);
  m.constants.kernels["gemm"] = {1e6, 0, 0};
  EXPECT_GT(estimate::estimate(program, step::Residency::resident, *device, m).compute, 1e6)
      << "a kernel's own rate goes before its class";
}

TEST(Estimate, TellsWhenMemoryIsShort) {
  device::Target small = phone_target();
  small.memory = 1 << 20;
  const Machine m = free_machine();
  EXPECT_FALSE(estimate::estimate(lenet_step(64), step::Residency::resident, *make_paper_device(small), m).fits());
  EXPECT_TRUE(
      estimate::estimate(lenet_step(64), step::Residency::resident, *make_paper_device(phone_target()), m).fits());
}

TEST(EstimateConstants, SurviveTheFileAndRefuseOthers) {
  Constants c = default_constants(Kind::gpu);
  c.kernels["gemm"] = {1e-6, 2.5, 0.5};
  c.launch_seconds = 3e-6;
  c.band = 0.25;
  const Constants back = constants_from_json(to_json(c), "here");
  EXPECT_EQ(to_json(back), to_json(c));
  EXPECT_DOUBLE_EQ(back.kernels.at("gemm").flops, 2.5);
  for (const char* text : {"", "{}", "[1]"}) {
    try {
      constants_from_json(text, "/the/file");
      FAIL() << text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("/the/file"), std::string::npos);
    }
  }
}

TEST(EstimateConstants, AreKeptPerDevice) {
  const TemporaryFolder folder;
  device::Target one = phone_target(), two = one;
  two.driver = "another";
  EXPECT_FALSE(load_constants(one, folder.path()));
  save_constants(default_constants(Kind::cpu), one, folder.path());
  EXPECT_TRUE(load_constants(one, folder.path()));
  EXPECT_FALSE(load_constants(two, folder.path()));
}

// Launches as a machine with these rates would run them.
MeasuredStep made_up_step(const std::string& model, double factor, int pairs = 12) {
  MeasuredStep s;
  s.model = model;
  for (int i = 1; i <= pairs; ++i) {
    const Work gemm{"gemm", Class::product, 1e6 * i * factor, 1e5 * (i % 5 + 1)};
    const Work add{"add", Class::pointwise, 1e4 * i, 2e5 * i * factor};
    s.works.insert(s.works.end(), {gemm, add});
    s.launch_seconds.push_back(3e-6 + 2 * gemm.flops / 100e9 + 0.5 * gemm.bytes / 10e9);
    s.launch_seconds.push_back(1e-6 + 1.5 * add.bytes / 10e9);
  }
  for (double t : s.launch_seconds) s.seconds += t + 5e-6;
  return s;
}

TEST(EstimateCalibration, FindsTheRatesBehindMeasurements) {
  device::Roofline r;
  r.peak_flops = 100e9;
  r.levels = {{1 << 20, 10e9}};
  r.launch_seconds = 2e-6;
  const std::vector<MeasuredStep> steps{made_up_step("a", 1), made_up_step("b", 3, 40), made_up_step("c", 0.5, 6)};
  const Constants c = fit(steps, r, Kind::cpu);
  const Work unseen{"gemm", Class::product, 7.7e6, 3e5};
  EXPECT_NEAR(seconds_of(unseen, r, c), 3e-6 + 2 * 7.7e6 / 100e9 + 0.5 * 3e5 / 10e9, 2e-6);
  for (const MeasuredStep& s : steps) EXPECT_NEAR(seconds_of(s, r, c) / s.seconds, 1, 0.02) << s.model;
  EXPECT_LE(c.band, 0.2) << "each model follows from the others";
  const Work other{"few_rows", Class::product, 7.7e6, 3e5};
  EXPECT_NEAR(seconds_of(other, r, c), seconds_of(unseen, r, c), 0.1 * seconds_of(unseen, r, c)) << "by its class";
  EXPECT_GE(c.classes.at(Class::product).flops, 1) << "nothing is faster than the peak";
}

TEST(EstimateCalibration, WhatExceedsTheStepWasAnInterruption) {
  device::Roofline r;
  r.peak_flops = 100e9;
  r.levels = {{1 << 20, 10e9}};
  MeasuredStep step;
  for (int i = 0; i < 4; ++i) step.works.push_back({"gemm", Class::product, 4e8, 0});
  step.launch_seconds = {10e-3, 12e-3, 14e-3, 12e-3};  // 8 ms each, but for others
  step.seconds = 32e-3;
  const Constants c = fit({step, step}, r, Kind::cpu);
  EXPECT_NEAR(c.scale * seconds_of(step.works[0], r, c), 8e-3, 0.8e-3);
}

TEST(EstimateCalibration, TheBandShowsAModelThatDoesNotFit) {
  device::Roofline r;
  r.peak_flops = 100e9;
  r.levels = {{1 << 20, 10e9}};
  std::vector<MeasuredStep> steps{made_up_step("a", 1), made_up_step("b", 3), made_up_step("odd", 2)};
  for (double& t : steps[2].launch_seconds) t *= 2;
  steps[2].seconds *= 2;
  EXPECT_GT(fit(steps, r, Kind::cpu).band, 0.5);
}

TEST(EstimatePhones, EveryFigureHasASource) {
  ASSERT_GE(all_phones().size(), 6u);
  std::set<std::string> names;
  for (const Phone& phone : all_phones()) {
    SCOPED_TRACE(phone.name);
    EXPECT_TRUE(names.insert(phone.name).second);
    std::set<std::string> explained;
    for (const auto* list : {&phone.sources, &phone.derived})
      for (const auto& [figure, text] : *list) {
        EXPECT_GT(text.size(), 5u) << figure;
        explained.insert(figure);
      }
    for (const char* figure : {"gpu.peak_gflops", "gpu.bandwidth_gbytes", "gpu.launch_us", "gpu.copy_gbytes",
                               "memory_mib", "largest_buffer_mib"})
      EXPECT_TRUE(explained.contains(figure)) << figure;
    EXPECT_TRUE(!phone.cpu || explained.contains("cpu.peak_gflops"));
    EXPECT_TRUE(phone.study || explained.contains("gpu.wait_us"));
    EXPECT_GT(phone.gpu.roofline.wait_seconds, 0);
    EXPECT_GT(phone.gpu.roofline.copy_in_bandwidth, 1e9);
    EXPECT_LT(phone.gpu.roofline.copy_in_bandwidth, 1e11);
  }
  EXPECT_EQ(find_phone("adreno-9999"), nullptr);
}

TEST(EstimatePhones, CompileAndEstimateModels) {
  for (const Phone& phone : all_phones()) {
    SCOPED_TRACE(phone.name);
    const Machine gpu{phone.gpu.roofline, default_constants(Kind::gpu)};
    const auto device = make_paper_device(phone.gpu.target);
    const Estimate resident = estimate::estimate(lenet_step(64), step::Residency::resident, *device, gpu);
    const Estimate naive = estimate::estimate(lenet_step(64), step::Residency::naive, *device, gpu);
    EXPECT_TRUE(resident.fits());
    EXPECT_EQ(resident.wait, 0);
    EXPECT_GT(naive.seconds(), 2 * resident.seconds()) << "what the study found";
    EXPECT_LT(resident.least(), resident.seconds());
    EXPECT_GT(resident.most(), resident.seconds());
    if (!phone.cpu) continue;
    const Machine cpu{phone.cpu->roofline, default_constants(Kind::cpu)};
    EXPECT_GT(estimate::estimate(lenet_step(64), step::Residency::resident, *make_paper_device(phone.cpu->target), cpu)
                  .seconds(),
              0);
  }
}

std::vector<const Phone*> study_phones() {
  std::vector<const Phone*> list;
  for (const Phone& phone : all_phones())
    if (phone.study) list.push_back(&phone);
  return list;
}

TEST(EstimateStudy, TripsAreLayersAndTheLoss) {
  const device::Target target = phone_target();
  EXPECT_EQ(study_work("16-16", 32, target).trips, 2);
  EXPECT_EQ(study_work("784-256-128-16", 32, target).trips, 4);
  const StudyWork m3 = study_work("256-256", 32, target);
  EXPECT_GE(m3.flops, 2.0 * 32 * 256 * 256);
  EXPECT_GE(m3.bytes, 4.0 * 256 * 256);
}

// Constants come from M1 and M3; M2 and M4 are estimated.
TEST(EstimateStudy, OtherModelsLieWithinAThirdOfTheTable) {
  const StudyFit fit = fit_study(all_phones());
  const auto phones = study_phones();
  ASSERT_EQ(phones.size(), 3u);
  for (const Phone* phone : phones)
    for (size_t m : {1, 3}) {
      const Estimate e =
          study_estimate(fit, *phone, study_work(phone->study->models[m], phone->study->batch, phone->gpu.target));
      EXPECT_NEAR(e.seconds() / phone->study->gpu[m], 1, 0.35) << phone->name << " " << phone->study->models[m];
    }
}

TEST(EstimateStudy, MovementLaunchAndWaitAreMostOfTheTime) {
  const StudyFit fit = fit_study(all_phones());
  for (const Phone* phone : study_phones())
    for (const std::string& model : phone->study->models) {
      const Estimate e = study_estimate(fit, *phone, study_work(model, phone->study->batch, phone->gpu.target));
      EXPECT_GE(e.outside(), 0.85) << phone->name << " " << model;
      EXPECT_LE(e.outside(), 0.95) << phone->name << " " << model;
    }
}

struct StudyPoint {
  double table, estimated;
  std::string name;
};

// [phone][model]
std::vector<std::vector<StudyPoint>> study_points() {
  const StudyFit fit = fit_study(all_phones());
  std::vector<std::vector<StudyPoint>> points;
  for (const Phone* phone : study_phones()) {
    points.emplace_back();
    for (size_t m = 0; m < phone->study->models.size(); ++m) {
      const StudyWork work = study_work(phone->study->models[m], phone->study->batch, phone->gpu.target);
      points.back().push_back({phone->study->gpu[m], study_estimate(fit, *phone, work).seconds(),
                               phone->name + " " + phone->study->models[m]});
    }
  }
  return points;
}

std::vector<std::vector<StudyPoint>> turned(const std::vector<std::vector<StudyPoint>>& points) {
  std::vector<std::vector<StudyPoint>> result(points.front().size());
  for (const auto& row : points)
    for (size_t i = 0; i < row.size(); ++i) result[i].push_back(row[i]);
  return result;
}

StudyPoint geometric_mean(const std::vector<StudyPoint>& points) {
  StudyPoint mean{1, 1, "all with " + points.front().name};
  for (const StudyPoint& p : points) {
    mean.table *= std::pow(p.table, 1.0 / static_cast<double>(points.size()));
    mean.estimated *= std::pow(p.estimated, 1.0 / static_cast<double>(points.size()));
  }
  return mean;
}

void expect_same_order(const std::vector<StudyPoint>& points, double apart) {
  for (const StudyPoint& a : points)
    for (const StudyPoint& b : points)
      if (a.table > apart * b.table) {
        EXPECT_GT(a.estimated, b.estimated) << a.name << " against " << b.name;
      }
}

TEST(EstimateStudy, OrderOfPhonesOverAllModelsAndOfModelsOverAllPhones) {
  std::vector<StudyPoint> phones, models;
  for (const auto& row : study_points()) phones.push_back(geometric_mean(row));
  for (const auto& column : turned(study_points())) models.push_back(geometric_mean(column));
  expect_same_order(phones, 1);
  expect_same_order(models, 1);
}

// Pair by pair, where the table tells two apart: it was read off plots, each figure to a tenth.
TEST(EstimateStudy, OrderOfTheModelsOfAPhoneAndOfThePhonesOfAModel) {
  for (const auto& row : study_points()) expect_same_order(row, 1.15);
  for (const auto& column : turned(study_points())) expect_same_order(column, 1.15);
}

Option option(const std::string& name, double seconds, double band, int64_t memory = 1) {
  Option o{name, {}};
  o.estimate.compute = seconds;
  o.estimate.band = band;
  o.estimate.memory = memory;
  o.estimate.available = 10;
  return o;
}

TEST(EstimateChoice, MeasuresOnlyWhatEstimatesCannotTellApart) {
  const Measure never = [](const std::vector<size_t>&) -> std::vector<double> {
    ADD_FAILURE() << "measured";
    return {};
  };
  EXPECT_EQ(choose({option("cpu", 1, 0.2), option("gpu", 0.5, 0.2)}, never).index, 1u);
  EXPECT_EQ(choose({option("cpu", 1, 0.2), option("gpu", 0.5, 0.2, 11)}, never).index, 0u) << "the other does not fit";
  size_t asked = 0;
  const Measure slow_second = [&](const std::vector<size_t>& which) {
    asked = which.size();
    std::vector<double> seconds;
    for (size_t i : which) seconds.push_back(i == 1 ? 2.0 : 1.0);
    return seconds;
  };
  const Choice c = choose({option("cpu", 1, 0.2), option("gpu", 0.9, 0.2), option("far", 9, 0.2)}, slow_second);
  EXPECT_EQ(c.index, 0u) << "the measurement decides";
  EXPECT_EQ(asked, 2u) << "the third is out of reach";
  EXPECT_NE(c.why.find("measured"), std::string::npos);
  const Measure none = [](const std::vector<size_t>& which) { return std::vector<double>(which.size(), INFINITY); };
  EXPECT_EQ(choose({option("cpu", 1, 0.2), option("gpu", 0.9, 0.2)}, none).index, 1u);
  EXPECT_THROW(choose({option("cpu", 1, 0.2, 11)}, never), Error);
}

Place place(const std::string& name, double fixed, double per_sample) {
  return {name, name == "GPU", name, 1e9, 0, [=](const Variant& v) {
            Estimate e;
            e.compute =
                fixed + per_sample * static_cast<double>(v.batch) * (v.train == "last" ? 0.25 : 1) * (v.half ? 0.5 : 1);
            e.band = 0.1;
            e.memory = v.batch << 20;
            e.available = int64_t{100} << 20;
            return e;
          }};
}

std::string said(const std::vector<Advice>& advice, const std::string& topic) {
  for (const Advice& a : advice)
    if (a.topic == topic) return a.say + " | " + a.because;
  return "";
}

TEST(EstimateAdvice, FollowsTheNumbers) {
  Question q;
  q.batch = 32;
  q.parameter_bytes = 1000;
  q.budgets = {int64_t{8} << 20, int64_t{512} << 10};
  q.batches = {1, 2, 4, 8, 16, 32, 64, 128};
  const auto advice = advise({place("CPU", 0, 10e-3), place("GPU", 16e-3, 1e-3)}, q);
  EXPECT_NE(said(advice, "device").find("train on GPU |"), std::string::npos) << said(advice, "device");
  EXPECT_NE(said(advice, "batch").find("a batch of 64 is enough"), std::string::npos)
      << "16 of fixed cost; 128 does not fit; " << said(advice, "batch");
  EXPECT_NE(said(advice, "precision").find("fp16 (--precision fp16)"), std::string::npos);
  EXPECT_NE(said(advice, "freeze").find("2.0 times as fast"), std::string::npos) << said(advice, "freeze");
  EXPECT_NE(said(advice, "memory").find("8 MiB: batch 8 at 2.00 times"), std::string::npos) << said(advice, "memory");
  EXPECT_NE(said(advice, "memory").find("0.5 MiB: nothing fits"), std::string::npos);
  EXPECT_NE(said(advice, "split").find("would pay"), std::string::npos) << "320 and 48 ms: 42 together";
}

TEST(EstimateAdvice, NoSplitWhereItDoesNotPayOrCannotBe) {
  Question q;
  q.batch = 32;
  q.parameter_bytes = 100'000'000;  // 0.2 s to exchange
  q.batches = {32};
  EXPECT_NE(said(advise({place("CPU", 0, 2e-3), place("GPU", 0, 1e-3)}, q), "split").find("do not split"),
            std::string::npos);
  Place same = place("GPU", 0, 1e-3);
  same.silicon = "CPU";
  EXPECT_EQ(said(advise({place("CPU", 0, 2e-3), same}, q), "split"), "") << "one piece of silicon";
}

}  // namespace
}  // namespace situ::test
