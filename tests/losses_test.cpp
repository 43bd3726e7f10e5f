// losses_test.cpp -- the losses of model/losses.h: values and gradients against plain formulas in double, on every
// device; and their ops by numbers computed by hand.
#include "model/losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/error.h"
#include "grad/reverse.h"
#include "harness.h"
#include "oracle.h"
#include "step/run.h"

namespace situ::test {
namespace {

using ir::Value;
using model::Samples;
using Vector = std::vector<double>;
using Formula = std::function<double(const Vector& x, const Vector& t, int64_t row)>;  // loss of a sample, unweighted
using Build = std::function<Value(ir::Graph&, Value x, Value t, const Samples&)>;

constexpr double kScale = 0.375;

double noise(size_t i) { return static_cast<double>((i * 2654435761u >> 7) % 2001) / 1024 - 1; }
Vector noises(int64_t count, size_t seed, double by) {
  Vector v(static_cast<size_t>(count));
  for (size_t i = 0; i < v.size(); ++i) v[i] = by * noise(i * 37 + seed * 1009 + 3);
  return v;
}

struct Case {
  std::string name;
  Type type;  // of x and t
  Build build;
  Formula formula;
  double x_by = 1, t_by = 1;
  bool padded = true;  // the last sample has weight 0
};

Formula mean_of(const Type& type, double (*each)(double x, double t)) {
  const int64_t n = type.count() / type.shape[0];
  return [=](const Vector& x, const Vector& t, int64_t row) {
    double sum = 0;
    for (int64_t i = row * n; i < (row + 1) * n; ++i) sum += each(x[static_cast<size_t>(i)], t[static_cast<size_t>(i)]);
    return sum / static_cast<double>(n);
  };
}

double log_sum_exp(const Vector& v) {
  double sum = 0;
  for (double x : v) sum += std::exp(x);
  return std::log(sum);
}
Vector row_of(const Vector& v, int64_t row, int64_t n, double by = 1) {
  Vector r(v.begin() + row * n, v.begin() + (row + 1) * n);
  for (double& x : r) x *= by;
  return r;
}

double kl(const Vector& student, const Vector& teacher, double temperature) {
  double sum = 0;
  for (size_t c = 0; c < student.size(); ++c) {
    const double log_p = teacher[c] / temperature -
                         log_sum_exp(row_of(teacher, 0, static_cast<int64_t>(teacher.size()), 1 / temperature));
    const double log_q = student[c] / temperature -
                         log_sum_exp(row_of(student, 0, static_cast<int64_t>(student.size()), 1 / temperature));
    sum += std::exp(log_p) * (log_p - log_q);
  }
  return temperature * temperature * sum;
}

// Samples of weight 0 (the last one) are nobody's opposites.
double nce(const Vector& a, const Vector& b, int64_t row, int64_t n, int64_t dims, double temperature) {
  auto cosine = [&](int64_t i, int64_t j) {
    double dot = 0, aa = 0, bb = 0;
    for (int64_t k = 0; k < dims; ++k) {
      const double x = a[static_cast<size_t>(i * dims + k)], y = b[static_cast<size_t>(j * dims + k)];
      dot += x * y, aa += x * x, bb += y * y;
    }
    return dot / std::sqrt(aa * bb) / temperature;
  };
  Vector across, down;
  for (int64_t j = 0; j + 1 < n; ++j) across.push_back(cosine(row, j)), down.push_back(cosine(j, row));
  return (log_sum_exp(across) + log_sum_exp(down)) / 2 - cosine(row, row);
}

std::vector<Case> cases() {
  const Type flat = f32({9}), matrix = f32({5, 7}), image = f32({3, 2, 4, 5});
  std::vector<Case> list;
  for (const Type& type : {flat, matrix, image}) {
    const std::string rank = std::to_string(type.shape.rank());
    list.push_back({"bce" + rank, type, model::bce_with_logits,
                    mean_of(type, [](double x, double t) { return std::log1p(std::exp(x)) - x * t; }), 9});
    list.push_back(
        {"mse" + rank, type, model::mse, mean_of(type, [](double x, double t) { return (x - t) * (x - t); })});
    list.push_back({"l1" + rank, type, model::l1, mean_of(type, [](double x, double t) { return std::fabs(x - t); })});
    list.push_back({"huber" + rank, type,
                    [](ir::Graph& g, Value x, Value t, const Samples& s) { return model::huber(g, x, t, 0.625, s); },
                    mean_of(type, [](double x, double t) {
                      const double e = std::fabs(x - t);
                      return e <= 0.625 ? e * e / 2 : 0.625 * (e - 0.3125);
                    })});
  }
  for (double temperature : {1.0, 4.0})
    list.push_back(
        {temperature == 1 ? "distillation" : "distillation_warm", matrix,
         [=](ir::Graph& g, Value x, Value t, const Samples& s) { return model::distillation(g, x, t, temperature, s); },
         [=](const Vector& x, const Vector& t, int64_t row) {
           return kl(row_of(x, row, 7), row_of(t, row, 7), temperature);
         },
         3, 5});
  for (double temperature : {0.5, 0.0625})
    list.push_back(
        {temperature == 0.5 ? "info_nce" : "info_nce_cold", matrix,
         [=](ir::Graph& g, Value x, Value t, const Samples& s) { return model::info_nce(g, x, t, temperature, s); },
         [=](const Vector& x, const Vector& t, int64_t row) { return nce(x, t, row, 5, 7, temperature); }});
  return list;
}

struct Instance {
  std::string device;
  Case with;
};
std::vector<Instance> instances() {
  std::vector<Instance> list;
  for (const char* device : {"ref", "cpu", "opencl"})
    for (const Case& c : cases()) list.push_back({device, c});
  return list;
}
void PrintTo(const Instance& i, std::ostream* out) { *out << i.device << " " << i.with.name; }

class Losses : public testing::TestWithParam<Instance> {};

// Inputs x, t, weight, scale; outputs loss and dx, the gradient of its sum.
ir::Graph program(const Case& c) {
  ir::Graph graph;
  graph.name = "loss";
  const Value x = graph.input("x", c.type), t = graph.input("t", c.type);
  const Samples samples{graph.input("weight", f32({c.type.shape[0]})), graph.input("scale", f32({}))};
  const Value loss = c.build(graph, x, t, samples);
  EXPECT_EQ(graph.type(loss), f32({c.type.shape[0]}));
  const Value total = ops::emit(graph, "reduce", {loss}, {{"kind", "sum"}, {"axes", ir::Ints{0}}});
  graph.output("loss", loss);
  graph.output("dx", grad::gradients(graph, total, {x})[0]);
  return graph;
}

TEST_P(Losses, FollowTheirFormula) {
  device::Device* device = device_under_test(GetParam().device);
  if (!device) GTEST_SKIP() << GetParam().device << " is left out by SITU_TEST_DEVICES";
  const Case& c = GetParam().with;
  const int64_t n = c.type.shape[0];
  Vector x = noises(c.type.count(), 1, c.x_by), weight = noises(n, 3, 0.5);
  const Vector t = noises(c.type.count(), 2, c.t_by);
  for (double& w : weight) w += 1;
  weight.back() = 0;
  const auto got = step::run_once(*device, program(c), {{"x", x}, {"t", t}, {"weight", weight}, {"scale", {kScale}}});
  const bool exact = device->target().element_bytes == 8;
  auto total = [&] {
    double sum = 0;
    for (int64_t r = 0; r < n; ++r)
      if (const double w = weight[static_cast<size_t>(r)]; w != 0) sum += w * kScale * c.formula(x, t, r);
    return sum;
  };
  for (int64_t r = 0; r < n; ++r) {
    const double w = weight[static_cast<size_t>(r)], expected = w == 0 ? 0 : w * kScale * c.formula(x, t, r);
    EXPECT_NEAR(got.at("loss")[static_cast<size_t>(r)], expected, exact ? 1e-12 : 1e-5) << "sample " << r;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i], h = 1e-6;
    x[i] = kept + h;
    const double above = total();
    x[i] = kept - h;
    const double below = total();
    x[i] = kept;
    EXPECT_NEAR(got.at("dx")[i], (above - below) / (2 * h), exact ? 1e-8 : 1e-5) << "element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Formulas, Losses, testing::ValuesIn(instances()),
                         [](const auto& instance) { return instance.param.device + "_" + instance.param.with.name; });

Vector run_on_ref(const Case& c, const Vector& x, const Vector& t, const char* output) {
  const auto n = static_cast<size_t>(c.type.shape[0]);
  return step::run_once(*device_under_test("ref"), program(c),
                        {{"x", x}, {"t", t}, {"weight", Vector(n, 1)}, {"scale", {1}}})
      .at(output);
}

// Where a network starts: logits of exactly 0, and beyond what exp can hold.
TEST(LossValues, BinaryCrossEntropyAtItsEdges) {
  if (!device_under_test("ref")) GTEST_SKIP() << "ref is left out by SITU_TEST_DEVICES";
  const Case c{"bce", f32({5}), model::bce_with_logits, nullptr};
  const Vector x{0, 0, 800, -800, 800}, t{0, 1, 1, 0, 0};
  const Vector loss = run_on_ref(c, x, t, "loss"), dx = run_on_ref(c, x, t, "dx");
  const Vector losses{std::log(2.0), std::log(2.0), 0, 0, 800}, slopes{0.5, -0.5, 0, 0, 1};
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(loss[i], losses[i], 1e-12);
    EXPECT_NEAR(dx[i], slopes[i], 1e-12);
  }
}

TEST(LossValues, EqualLogitsTeachNothing) {
  for (const char* name : {"ref", "cpu", "opencl"}) {
    device::Device* device = device_under_test(name);
    if (!device) continue;
    const Case c{"d", f32({3, 5}),
                 [](ir::Graph& g, Value x, Value t, const Samples& s) { return model::distillation(g, x, t, 2, s); },
                 nullptr};
    const Vector x = noises(15, 1, 4);
    const auto got = step::run_once(*device, program(c), {{"x", x}, {"t", x}, {"weight", {1, 1, 1}}, {"scale", {1}}});
    for (double v : got.at("loss")) EXPECT_EQ(v, 0) << name;
    for (double v : got.at("dx")) EXPECT_NEAR(v, 0, 1e-6) << name;
  }
}

TEST(LossValues, SettingsThatMakeNoSense) {
  ir::Graph g;
  const Value x = g.input("x", f32({3, 4})), t = g.input("t", f32({3, 5}));
  const Samples s{g.input("weight", f32({3})), g.input("scale", f32({}))};
  EXPECT_THROW(model::mse(g, x, t, s), Error);
  EXPECT_THROW(model::huber(g, x, x, 0, s), Error);
  EXPECT_THROW(model::info_nce(g, x, x, 0, s), Error);
  EXPECT_THROW(model::distillation(g, x, x, -1, s), Error);
}

oracle::Tensors run(std::string_view op, std::string_view text, const oracle::Tensors& inputs) {
  return oracle::run(oracle::single(ops::get(op), oracle::examples_from(op, text).at(0)).view(), inputs);
}
void expect_near(const Vector& found, const Vector& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << "element " << i;
}

// Probabilities 1/8, 2/8, 5/8; PyTorch: (1 - 0.3) * nll + 0.3 * mean over classes of -log p.
TEST(ByHand, SmoothedLabels) {
  const double a = std::log(1.0), b = std::log(2.0), c = std::log(5.0);
  const auto y = run("softmax_xent", "f32[1,3], i32[1], f32[1], f32[] {smoothing=0.3}", {{a, b, c}, {1}, {3}, {0.5}});
  expect_near(y[0], {1.5 * (0.7 * std::log(4.0) + 0.1 * (std::log(8.0) + std::log(4.0) + std::log(1.6)))});
  expect_near(y[1], {1.5 * (0.125 - 0.1), 1.5 * (0.25 - 0.8), 1.5 * (0.625 - 0.1)});
}

TEST(ByHand, ProbabilitiesAsTargets) {
  const double a = std::log(1.0), b = std::log(2.0), c = std::log(5.0), inf = INFINITY, nan = std::nan("");
  const auto y = run("softmax_soft_xent", "f32[3,3], f32[3,3], f32[3], f32[]",
                     {{a, b, c, nan, 1, 2, 0, -inf, 0}, {0.5, 0.25, 0.25, 1, 1, 1, 1, 0, 0}, {2, 0, 1}, {0.5}});
  expect_near(y[0], {0.5 * std::log(8.0) + 0.25 * std::log(4.0) + 0.25 * std::log(1.6), 0, 0.5 * std::log(2.0)});
  expect_near(y[1], {0.125 - 0.5, 0, 0.625 - 0.25, 0, 0, 0, -0.25, 0, 0.25});
}

}  // namespace
}  // namespace situ::test
