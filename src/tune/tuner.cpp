#include "tune/tuner.h"

#include <algorithm>
#include <cmath>

#include "backend/ref/device.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/half.h"
#include "plan/plan.h"
#include "step/run.h"
#include "step/session.h"

namespace situ::tune {
namespace {

constexpr double kOracleFlops = 2e7;    // more, and the oracle takes long
constexpr double kBlockSeconds = 4e-3;  // long against a clock's steps and a launch
constexpr int kLeastRounds = 5, kMostRounds = 100;
constexpr int kRoundsToTell = 3;  // after so many, what is much slower than the best is measured no further
constexpr double kMuchSlower = 1.25;
constexpr double kWorthwhile = 0.98;  // of the time of the estimate's choice: what is nearer to it is noise
// A driver's thread gives launches to the device while the measured step's own work goes on: a launch more or less is
// told from noise only where it costs more than this.
constexpr double kDriverNoise = 1.5e-6;
// A node that lives from memory finds its operands nearer here than in a step, which has touched much else since: only
// a clear difference counts.
constexpr double kFarBytes = 4 << 20, kFarFlopsPerByte = 10, kFarNoise = 0.15;
constexpr double kNodesShare = 0.7;   // of the time; whole steps get the rest
constexpr double kStepFaster = 0.99;  // what a step must take without a choice, of its time with it, to drop it
constexpr int kStepRounds = 7;
constexpr double kStepBlock = 10e-3;
constexpr double kAgreement = 2e-4;  // of results, in units of their root mean square

// One node with its operands and results as states, so that a run moves nothing.
struct Task {
  std::string key;
  int64_t times = 0;
  double flops = 0, bytes = 0;
  ir::Graph graph;
  std::vector<std::string> candidates;
};

// Where the step stores an operand as half, a copy converts it here too: the same for all candidates. What the step
// never changes, as a frozen weight, is steady here too: arranging it is no part of a step.
ir::Graph alone(const ir::Graph& from, const ir::Node& node, const std::vector<Type>& stored,
                const std::vector<bool>& steady) {
  const auto half = [&](ir::Value v) { return stored[static_cast<size_t>(v)].dtype == DType::f16; };
  ir::Graph graph;
  graph.name = "node";
  ir::Values inputs;
  std::vector<Type> types;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const std::string name = fmt::format("i{}", i);
    const bool changing = !steady[static_cast<size_t>(node.inputs[i])];
    graph.declare({name,
                   from.type(node.inputs[i]),
                   {{"role", "slot"}, {"activation", int64_t{half(node.inputs[i])}}, {"changing", int64_t{changing}}}});
    inputs.push_back(graph.read(name));
    if (half(node.inputs[i])) inputs.back() = ops::emit(graph, "copy", {inputs.back()});
  }
  for (ir::Value v : node.outputs) types.push_back(from.type(v));
  const ir::Values outputs = graph.append(node.op, inputs, types, node.attrs).outputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string name = fmt::format("o{}", i);
    graph.declare({name, types[i], {{"role", "slot"}}});
    graph.write(name, half(node.outputs[i]) ? ops::emit(graph, "copy", {outputs[i]}) : outputs[i]);
  }
  return graph;
}

std::vector<Task> tasks_of(const device::Device& device, const std::vector<ir::Graph>& programs) {
  std::vector<Task> tasks;
  for (const ir::Graph& program : programs) {
    const ir::Graph graph = step::rewritten(program, device);
    const std::vector<Type> stored = plan::lower(graph, device).types;
    const std::vector<bool> steady = plan::steady_values(graph);
    for (const ir::Node& node : graph.nodes) {
      if (!plan::is_launch(node)) continue;
      const ops::OpView view = ops::view_of(graph, node);
      const auto candidates = plan::candidates_for(device, view);
      if (candidates.size() < 2) continue;
      const std::string key = device::node_key(view);
      const auto known = std::find_if(tasks.begin(), tasks.end(), [&](const Task& t) { return t.key == key; });
      if (known != tasks.end()) {
        ++known->times;
        continue;
      }
      const ops::Cost cost = ops::cost_of(view);
      Task task{key, 1, cost.flops, cost.bytes, alone(graph, node, stored, steady), {}};
      for (const device::Candidate* c : candidates) task.candidates.emplace_back(c->name);
      tasks.push_back(std::move(task));
    }
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) {
    return a.flops * static_cast<double>(a.times) > b.flops * static_cast<double>(b.times);
  });
  return tasks;
}

// Numbers between -1 and 1 that look random, the same for every candidate; integers are 0, a valid index anywhere.
// What is stored as half is one, so that the oracle sees the same.
std::vector<float> values_for(const ir::State& operand, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(operand.type.count()));
  if (operand.type.dtype != DType::f32) return values;
  uint32_t state = seed * 2654435761u + 1;
  for (float& v : values) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(state >> 8) * 0x1p-23f - 1;
    if (operand.attrs.flag("activation")) v = static_cast<float>(rounded_to_half(static_cast<double>(v)));
  }
  return values;
}

std::unique_ptr<step::Session> start(device::Device& device, const Task& task) {
  step::SessionOptions options;
  options.compile.fuse = false;  // the node is rewritten already
  auto session = std::make_unique<step::Session>(device, std::vector<ir::Graph>{task.graph}, options);
  uint32_t seed = 1;
  for (const ir::State& state : session->states())
    if (state.name[0] == 'i') session->set(state.name, values_for(state, seed++));
  return session;
}

void run(step::Session& session, int64_t times) {
  for (int64_t i = 0; i < times; ++i) session.run(0, session.next_batch());
  session.device().finish();
}

std::vector<std::vector<float>> results_of(step::Session& session) {
  run(session, 1);
  std::vector<std::vector<float>> results;
  for (const ir::State& state : session.states())
    if (state.name[0] == 'o') results.push_back(session.get(state.name));
  return results;
}

double block_seconds(step::Session& session, int64_t runs) {
  const double begin = now();
  run(session, runs);
  return (now() - begin) / static_cast<double>(runs);
}

class Bench {
 public:
  Bench(device::Device& device, const Task& task) : device_(device), task_(task) {
    for (const std::string& name : task.candidates) {
      device.choices[task.key] = name;
      sessions_.push_back(start(device, task));
    }
  }

  // At least a few rounds, more for as long as `seconds` last.
  NodeResult measure(double seconds) {
    const double begin = now();
    NodeResult result{task_.key, task_.times, {}, device_.target().kernels.empty() ? 0 : kDriverNoise};
    for (const std::string& name : task_.candidates) result.candidates.push_back({name, INFINITY, false});
    find_wrong(result);
    std::vector<int64_t> runs;
    for (const auto& session : sessions_) {
      const double once = std::max(1e-7, block_seconds(*session, 1));
      runs.push_back(std::clamp<int64_t>(static_cast<int64_t>(kBlockSeconds / once), 1, 1000));
    }
    double fastest = INFINITY;
    for (int round = 0; round < kLeastRounds || (round < kMostRounds && now() - begin < seconds); ++round)
      for (size_t i = 0; i < sessions_.size(); ++i) {
        double& best = result.candidates[i].seconds;
        if (i > 0 && round >= kRoundsToTell && best > kMuchSlower * fastest) continue;
        best = std::min(best, block_seconds(*sessions_[i], runs[i]));
        if (!result.candidates[i].wrong) fastest = std::min(fastest, best);
      }
    if (task_.bytes > kFarBytes && task_.flops < kFarFlopsPerByte * task_.bytes)
      result.noise = std::max(result.noise, kFarNoise * result.candidates.front().seconds);
    return result;
  }

 private:
  void find_wrong(NodeResult& result) {
    std::vector<std::vector<float>> expected;
    if (task_.flops <= kOracleFlops) {
      const auto oracle = ref::make_device();
      expected = results_of(*start(*oracle, task_));
    } else {
      expected = results_of(*sessions_.front());
    }
    for (size_t i = 0; i < sessions_.size(); ++i)
      result.candidates[i].wrong = !std::ranges::equal(
          results_of(*sessions_[i]), expected,
          [&](const auto& a, const auto& b) { return agree(a, b, device_.activations == DType::f16 ? 0x1p-10 : 0); });
  }

  const device::Device& device_;
  const Task& task_;
  std::vector<std::unique_ptr<step::Session>> sessions_;
};

// The choices that differ from the estimates'.
device::Choices chosen(const std::vector<NodeResult>& results) {
  device::Choices choices;
  for (const NodeResult& r : results)
    if (r.changed()) choices[r.node] = r.best().candidate;
  return choices;
}

// A program in memory of its own.
class WholeStep {
 public:
  WholeStep(device::Device& device, const ir::Graph& program, const device::Choices& choices) {
    device.choices = choices;
    session_ = std::make_unique<step::Session>(device, std::vector<ir::Graph>{program}, step::SessionOptions{});
    step::set_initial_values(*session_, 1);
    const double once = std::max(1e-7, block_seconds(*session_, 1));
    runs_ = std::clamp<int64_t>(static_cast<int64_t>(kStepBlock / once), 1, 100);
  }
  double block() { return block_seconds(*session_, runs_); }

 private:
  std::unique_ptr<step::Session> session_;
  int64_t runs_ = 1;
};

std::pair<double, double> compare_steps(device::Device& device, const ir::Graph& program, const device::Choices& a,
                                        const device::Choices& b) {
  WholeStep first(device, program, a), second(device, program, b);
  std::pair<double, double> best{INFINITY, INFINITY};
  for (int round = 0; round < kStepRounds; ++round) {
    best.first = std::min(best.first, first.block());
    best.second = std::min(best.second, second.block());
  }
  return best;
}

}  // namespace

void confirm(std::vector<NodeResult>& results, const CompareSteps& compare, const std::function<bool()>& time_is_up) {
  for (NodeResult& r : results) {
    if (!r.changed() || r.candidates.front().wrong) continue;
    if (time_is_up()) break;
    const device::Choices with = chosen(results);
    r.slows_the_step = true;
    const auto [seconds_with, seconds_without] = compare(with, chosen(results));
    r.slows_the_step = seconds_without < kStepFaster * seconds_with;
  }
  const std::vector<NodeResult> kept = results;
  const device::Choices all = chosen(results);
  for (NodeResult& r : results)
    if (r.changed()) r.slows_the_step = true;
  const device::Choices none = chosen(results);  // but for those whose first candidate is wrong
  if (all == none) return;
  const auto [seconds_all, seconds_none] = compare(all, none);
  if (seconds_all <= seconds_none) results = kept;
}

bool agree(const std::vector<float>& a, const std::vector<float>& b, double rounding) {
  double squares = 0;
  for (float v : b) squares += static_cast<double>(v) * v;
  const double most = kAgreement * std::sqrt(squares / static_cast<double>(std::max<size_t>(1, b.size()))) + 1e-30;
  return std::ranges::equal(a, b, [&](float x, float y) {
    return std::fabs(static_cast<double>(x) - y) <= most + rounding * std::fabs(static_cast<double>(y));
  });
}

const Measurement& NodeResult::best() const {
  const Measurement &first = candidates.front(), *best = &first;
  if (slows_the_step && !first.wrong) return first;
  for (const Measurement& m : candidates) {
    const double to_beat =
        best == &first ? std::min(kWorthwhile * first.seconds, first.seconds - noise) : best->seconds;
    if (!m.wrong && (best->wrong || m.seconds < to_beat)) best = &m;
  }
  return *best;
}

std::vector<NodeResult> tune(device::Device& device, const std::vector<ir::Graph>& programs, const Options& options) {
  const device::Choices before = device.choices;
  device.choices.clear();  // the estimates' choice comes first, whatever was measured earlier
  const std::vector<Task> tasks = tasks_of(device, programs);
  const double begin = now(), for_nodes = kNodesShare * options.seconds;
  std::vector<NodeResult> results;
  try {
    for (size_t i = 0; i < tasks.size(); ++i) {
      if (i > 0 && now() - begin > for_nodes) break;
      if (options.progress) options.progress({i, tasks.size(), tasks[i].key});
      const double share = (for_nodes - (now() - begin)) / static_cast<double>(tasks.size() - i);
      results.push_back(Bench(device, tasks[i]).measure(share));
    }
    if (options.progress && !chosen(results).empty()) options.progress({tasks.size(), tasks.size(), "whole steps"});
    confirm(
        results,
        [&](const device::Choices& a, const device::Choices& b) {
          return compare_steps(device, programs.front(), a, b);
        },
        [&] { return now() - begin > options.seconds; });
  } catch (...) {
    device.choices = before;
    throw;
  }
  device.choices = before;
  return results;
}

}  // namespace situ::tune
