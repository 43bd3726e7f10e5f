// optimizer_test.cpp -- each optimizer over twenty steps of a small program against plain loops in double; clipping,
// decay groups and averages of the weights; how many launches they cost.
#include "model/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "base/error.h"
#include "harness.h"
#include "model/init.h"
#include "ops/op.h"
#include "pass/pass.h"
#include "step/session.h"

namespace situ::test {
namespace {

using model::Optimizer;
using Vector = std::vector<double>;

constexpr int kSteps = 20;
const std::map<std::string, Type> kParameters = {{"a", f32({3, 5})}, {"b", f32({7})}, {"c", f32({41, 3})}};

// Values that look random and are exact in f32.
double noise(uint64_t i) { return static_cast<double>((i * 2654435761u >> 7) % 2001) / 1024 - 1; }
Vector noises(size_t count, uint64_t seed) {
  Vector v(count);
  for (size_t i = 0; i < count; ++i) v[i] = noise(seed * 7919 + i * 31 + 5);
  return v;
}
double rate(int step) { return std::ldexp(static_cast<double>(8 + step % 3), -7); }

// Gradients 0.75 * w - target: enough to make every step depend on the one before.
ir::Graph program(const Optimizer& optimizer) {
  ir::Graph graph;
  graph.name = "train";
  std::vector<model::Update> updates;
  for (const auto& [name, type] : kParameters) {
    graph.declare({name, type, {{"role", "parameter"}, {"init", "uniform"}, {"bound", 0.5}}});
    const ir::Value pulled = ops::emit(graph, "mul", {graph.read(name), graph.constant(0.75, f32({}))});
    updates.push_back({name, ops::emit(graph, "sub", {pulled, graph.input("t." + name, type)})});
  }
  model::append_updates(graph, optimizer, updates);
  return graph;
}

// --- the optimizers as one would write them down ---
struct Loop {
  const Optimizer& o;
  std::map<std::string, Vector> w, average;
  std::map<std::string, std::map<std::string, Vector>> slots;
  int steps = 0;

  explicit Loop(const Optimizer& optimizer) : o(optimizer) {}

  void step(const std::map<std::string, Vector>& targets, double lr) {
    std::map<std::string, Vector> g;
    double squares = 0;
    for (const auto& [name, values] : w) {
      g[name] = values;
      for (size_t i = 0; i < values.size(); ++i) {
        g[name][i] = 0.75 * values[i] - targets.at(name)[i];
        squares += g[name][i] * g[name][i];
      }
    }
    const double factor = o.clip_norm > 0 ? std::min(1.0, o.clip_norm / (std::sqrt(squares) + 1e-6)) : 1;
    ++steps;
    for (auto& [name, values] : w) {
      const double decay = !o.decay_biases_and_norms && name == "b" ? 0 : o.decay;
      for (size_t i = 0; i < values.size(); ++i) {
        double slope = g[name][i] * factor;
        if (o.clip_value > 0) slope = std::max(-o.clip_value, std::min(o.clip_value, slope));
        values[i] = stepped(name, i, values[i], slope, decay, lr);
        if (o.ema > 0) average[name][i] = o.ema * average[name][i] + (1 - o.ema) * values[i];
      }
    }
  }

 private:
  double& slot(const std::string& name, const char* which, size_t i) {
    Vector& values = slots[name][which];
    if (values.empty()) values.assign(w.at(name).size(), o.kind == Optimizer::adagrad ? o.initial_sum : 0.0);
    return values[i];
  }
  double stepped(const std::string& name, size_t i, double x, double g, double decay, double lr) {
    if (o.kind == Optimizer::lion || o.kind == Optimizer::adamw)
      x -= lr * decay * x;
    else
      g += decay * x;
    if (o.kind == Optimizer::sgd) {
      if (o.momentum == 0) return x - lr * g;
      double& m = slot(name, "momentum_buffer", i);
      m = o.momentum * m + g;
      return x - lr * (o.nesterov ? g + o.momentum * m : m);
    }
    if (o.kind == Optimizer::adam || o.kind == Optimizer::adamw) {
      double &m = slot(name, "exp_avg", i), &v = slot(name, "exp_avg_sq", i);
      m = o.beta1 * m + (1 - o.beta1) * g;
      v = o.beta2 * v + (1 - o.beta2) * g * g;
      return x - lr * (m / (1 - std::pow(o.beta1, steps))) / (std::sqrt(v / (1 - std::pow(o.beta2, steps))) + o.eps);
    }
    if (o.kind == Optimizer::rmsprop) {
      double &s = slot(name, "square_avg", i), below = s = o.alpha * s + (1 - o.alpha) * g * g;
      if (o.centered) {
        double& mean = slot(name, "grad_avg", i);
        mean = o.alpha * mean + (1 - o.alpha) * g;
        below -= mean * mean;
      }
      const double d = g / (std::sqrt(below) + o.eps);
      if (o.momentum == 0) return x - lr * d;
      double& m = slot(name, "momentum_buffer", i);
      m = o.momentum * m + d;
      return x - lr * m;
    }
    if (o.kind == Optimizer::adagrad) {
      double& s = slot(name, "sum", i);
      s += g * g;
      return x - lr / (1 + (steps - 1) * o.lr_decay) * g / (std::sqrt(s) + o.eps);
    }
    double& m = slot(name, "exp_avg", i);
    const double c = o.beta1 * m + (1 - o.beta1) * g;
    m = o.beta2 * m + (1 - o.beta2) * g;
    return x - lr * (c > 0 ? 1 : c < 0 ? -1 : 0);
  }
};

// --- the cases ---
struct Case {
  const char* name;
  Optimizer optimizer;
};
std::vector<Case> settings() {
  std::vector<Case> list;
  auto add = [&](const char* name, Optimizer::Kind kind, const std::function<void(Optimizer&)>& change) {
    list.push_back({name, model::default_optimizer(kind)});
    change(list.back().optimizer);
  };
  add("sgd", Optimizer::sgd, [](Optimizer& o) { o.decay = 0.125; });
  add("sgd_plain_averaged", Optimizer::sgd, [](Optimizer& o) { o.momentum = 0, o.ema = 0.75; });
  add("nesterov_clipped", Optimizer::sgd, [](Optimizer& o) { o.nesterov = true, o.clip_norm = 2; });
  add("sgd_clip_wide", Optimizer::sgd, [](Optimizer& o) { o.clip_norm = 1e6; });
  add("sgd_clamped", Optimizer::sgd, [](Optimizer& o) { o.clip_value = 0.25, o.decay = 0.125; });
  add("adam", Optimizer::adam, [](Optimizer& o) { o.decay = 0.125, o.eps = 1e-3; });
  add("adamw_everything", Optimizer::adamw, [](Optimizer& o) {
    o.decay = 0.5, o.decay_biases_and_norms = false, o.clip_norm = 4, o.clip_value = 0.25, o.ema = 0.5, o.eps = 1e-3;
  });
  add("rmsprop", Optimizer::rmsprop, [](Optimizer& o) { o.decay = 0.125; });
  add("rmsprop_momentum", Optimizer::rmsprop, [](Optimizer& o) { o.momentum = 0.5, o.alpha = 0.75, o.clip_norm = 3; });
  add("rmsprop_centered", Optimizer::rmsprop, [](Optimizer& o) { o.centered = true, o.alpha = 0.75, o.eps = 0.125; });
  add("rmsprop_all", Optimizer::rmsprop, [](Optimizer& o) {
    o.centered = true, o.momentum = 0.75, o.alpha = 0.75, o.eps = 0.125, o.clip_value = 0.5, o.ema = 0.875;
  });
  add("adagrad", Optimizer::adagrad, [](Optimizer& o) { o.decay = 0.125; });
  add("adagrad_all", Optimizer::adagrad, [](Optimizer& o) {
    o.lr_decay = 0.25, o.initial_sum = 0.5, o.clip_norm = 2, o.decay = 0.25, o.decay_biases_and_norms = false;
  });
  add("lion", Optimizer::lion, [](Optimizer& o) { o.decay = 0.25; });
  add("lion_clipped", Optimizer::lion, [](Optimizer& o) { o.clip_norm = 1, o.ema = 0.5; });
  return list;
}

struct Instance {
  std::string device;
  Case with;
};
std::vector<Instance> instances() {
  std::vector<Instance> list;
  for (const char* device : {"ref", "cpu", "opencl"})
    for (const Case& c : settings()) list.push_back({device, c});
  return list;
}
void PrintTo(const Instance& i, std::ostream* out) { *out << i.device << " " << i.with.name; }

class Optimizers : public testing::TestWithParam<Instance> {};

void expect_near(step::Session& session, const std::string& state, const Vector& expected, double tolerance) {
  const Vector found = session.get_double(state);
  ASSERT_EQ(found.size(), expected.size()) << state;
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double error = std::fabs(found[i] - expected[i]) / (1 + std::fabs(expected[i]));
    worst = std::isnan(error) ? INFINITY : std::max(worst, error);
  }
  EXPECT_LE(worst, tolerance) << state;
}

TEST_P(Optimizers, FollowPlainLoops) {
  device::Device* device = device_under_test(GetParam().device);
  if (!device) GTEST_SKIP() << GetParam().device << " is left out by SITU_TEST_DEVICES";
  const Optimizer& o = GetParam().with.optimizer;
  step::Session session(*device, {program(o)});
  for (const ir::State& s : session.states()) session.set(s.name, model::initial_values(s, 3));
  Loop loop(o);
  for (const auto& [name, type] : kParameters) {
    loop.w[name] = session.get_double(name);
    if (o.ema == 0) continue;
    loop.average[name] = session.get_double("ema." + name);
    EXPECT_EQ(loop.w[name], loop.average[name]) << "an average starts as its parameter";
  }
  for (int s = 0; s < kSteps; ++s) {
    step::Batch& batch = session.next_batch();
    std::map<std::string, Vector> targets;
    for (const auto& [name, type] : kParameters) {
      targets[name] = noises(static_cast<size_t>(type.count()), static_cast<uint64_t>(s) * 8 + name[0]);
      std::ranges::copy(targets[name], batch.f32("t." + name).begin());
    }
    batch.set("lr", static_cast<float>(rate(s)));
    session.run(0, batch);
    loop.step(targets, rate(s));
  }
  const double tolerance = device->target().element_bytes == 8 ? 1e-13 : 4e-6;
  for (const auto& [name, values] : loop.w) expect_near(session, name, values, tolerance);
  for (const auto& [name, slots] : loop.slots) {
    EXPECT_EQ(slots.size(), model::slot_names(o).size());
    for (const std::string& slot : model::slot_names(o))
      expect_near(session, name + "." + slot, slots.at(slot), tolerance);
  }
  for (const auto& [name, values] : loop.average) expect_near(session, "ema." + name, values, tolerance);
  const bool counts = o.kind == Optimizer::adam || o.kind == Optimizer::adamw || o.kind == Optimizer::adagrad;
  EXPECT_EQ(counts ? session.get_double("optimizer.step")[0] : kSteps, kSteps);
}

INSTANTIATE_TEST_SUITE_P(TwentySteps, Optimizers, testing::ValuesIn(instances()),
                         [](const auto& instance) { return instance.param.device + "_" + instance.param.with.name; });

// --- launches ---
int count_of(const ir::Graph& graph, std::string_view op) {
  int count = 0;
  for (const ir::Node& node : graph.nodes) count += node.op == op;
  return count;
}

TEST(OptimizerPrograms, GroupUpdatesAndAverages) {
  Optimizer o = model::default_optimizer(Optimizer::lion);
  o.decay = 0.25;
  o.ema = 0.5;
  o.clip_norm = 1;
  ir::Graph graph = pass::optimise(program(o), {});
  EXPECT_EQ(count_of(graph, "lion"), 1);
  EXPECT_EQ(count_of(graph, "ema"), 1);
  EXPECT_EQ(count_of(graph, "square_sum"), 1);
  o.decay_biases_and_norms = false;
  graph = pass::optimise(program(o), {});
  EXPECT_EQ(count_of(graph, "lion"), 2);
  EXPECT_EQ(count_of(graph, "ema"), 1);
}

TEST(OptimizerPrograms, StatesThatFilesNeed) {
  Optimizer o = model::default_optimizer(Optimizer::rmsprop);
  o.momentum = 0.5;
  o.centered = true;
  EXPECT_EQ(model::slot_names(o), (std::vector<std::string>{"square_avg", "momentum_buffer", "grad_avg"}));
  o.ema = 0.5;
  const ir::Graph graph = program(o);
  EXPECT_TRUE(model::has_role(*graph.find_state("ema.a"), "ema"));
  EXPECT_TRUE(model::has_role(*graph.find_state("a.grad_avg"), "slot"));
  for (const char* name : {"sgd", "adam", "adamw", "rmsprop", "adagrad", "lion"})
    EXPECT_EQ(model::name_of(model::parse_optimizer(name)), name);
  EXPECT_THROW(model::parse_optimizer("momentum"), Error);
}

}  // namespace
}  // namespace situ::test
