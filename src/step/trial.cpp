#include "step/trial.h"

#include <cmath>
#include <set>

#include "base/error.h"
#include "ops/magnitude.h"
#include "plan/plan.h"
#include "step/probe.h"
#include "step/run.h"
#include "step/self_test.h"
#include "step/verdicts.h"

namespace situ::step {
namespace {

// In units of the tolerance that kernel tests use. Mistakes of compilers are gross, while a driver's exp() or a tie in
// a maximum may cost a little more than rounding does, and what is left out wrongly is lost.
constexpr double kAllowance = 64;
constexpr uint64_t kSeed = 1;

struct Task {
  Trial trial;
  Probe probe;
};

bool applies_to(const device::Device& device) {
  return !device.trials_folder.empty() && !device.target().kernels.empty();
}

// --- what has to be tried -------------------------------------------------------------------------------------------
// As written where a kernel is missing: lower says so when the program is compiled.
std::vector<Type> stored_types(const ir::Graph& graph, const device::Device& device) {
  std::vector<Type> types;
  for (const ir::ValueInfo& value : graph.values) types.push_back(value.type);
  return device.activations == DType::f32 ? types : plan::lower(graph, device).types;
}

std::string result_types(const ops::OpView& view) {
  std::string text;
  for (const Type& type : view.outs) text += name_of(type.dtype);
  return text;
}

class Unknown {
 public:
  Unknown(device::Device& device, const Verdicts& verdicts) : device_(device), verdicts_(verdicts) {}

  void add(const ops::OpView& view, const device::Candidate* candidate) {
    if (!seen_.insert(result_types(view) + device::node_key(view)).second) return;
    const std::string unit = plan::unit_of(device_, view, candidate);
    if (device_.left_out.contains(unit)) return;
    Probe probe = probe_of(view, candidate);
    const Trial trial{unit, programs_of(device_, probe)};
    if (verdicts_.knows(trial)) return;
    const auto known = cheapest_.find(trial);
    if (known == cheapest_.end())
      cheapest_.emplace(trial, std::move(probe));
    else if (oracle_work(probe) < oracle_work(known->second))
      known->second = std::move(probe);
  }

  std::vector<Task> tasks() const {
    std::vector<Task> tasks;
    for (const auto& [trial, probe] : cheapest_)
      if (auto small = made_small(device_, probe)) tasks.push_back({trial, std::move(*small)});
    return tasks;
  }

 private:
  device::Device& device_;
  const Verdicts& verdicts_;
  std::map<Trial, Probe> cheapest_;
  std::set<std::string> seen_;
};

// Candidates by the nodes they serve; kernels that an op has by its own name by the launches, which may have got other
// shapes than the node (pass/image_sheaves.cpp).
std::vector<Task> unknown_kernels(device::Device& device, const std::vector<ir::Graph>& programs,
                                  const CompileOptions& options, const Verdicts& verdicts) {
  Unknown unknown(device, verdicts);
  for (const ir::Graph& program : programs) {
    const ir::Graph graph = rewritten(program, device, options);
    const std::vector<Type> stored = stored_types(graph, device);
    bool complete = true;
    for (const ir::Node& node : graph.nodes) {
      if (!plan::is_launch(node)) continue;
      const auto candidates = plan::candidates_for(device, ops::view_of(graph, node));
      if (!candidates.empty()) unknown.add(plan::stored_view(graph, node, stored), candidates.front());
      complete = complete && (!candidates.empty() || device.has_kernel(node.op));  // else lower says so, in a sentence
    }
    if (!complete) continue;
    const ir::Graph launches = launch_list(program, device, options);
    for (ir::Node node : launches.nodes) {
      if (!plan::is_launch(node) || ops::find(node.op) == nullptr) continue;
      node.attrs.erase("may_alias");  // the plan's
      const ops::OpView view = ops::view_of(launches, node);
      if (plan::candidates_for(device, view).empty()) unknown.add(view, nullptr);
    }
  }
  return unknown.tasks();
}

// --- one run of several kernels -------------------------------------------------------------------------------------
std::string name_of(size_t task, char kind, size_t index) { return fmt::format("t{}.{}{}", task, kind, index); }

struct Side {  // by side in one program
  ir::Graph graph;
  Tensors inputs;
};

Side side_by_side(std::span<const Task* const> tasks) {
  Side side;
  side.graph.name = "self_test";
  for (size_t t = 0; t < tasks.size(); ++t) {
    const Probe& probe = tasks[t]->probe;
    ir::Values inputs;
    for (size_t i = 0; i < probe.example.inputs.size(); ++i) {
      const ir::Value input = side.graph.input(name_of(t, 'i', i), probe.example.inputs[i].type);
      inputs.push_back(probe.copied.in_at(i) ? ops::emit(side.graph, "copy", {input}) : input);
      side.inputs[name_of(t, 'i', i)] = operand_values(probe.example, i, kSeed, probe.copied);
    }
    const ir::Values outputs = ops::emit_all(side.graph, probe.op->name, inputs, probe.example.attrs);
    for (size_t o = 0; o < outputs.size(); ++o)
      side.graph.output(name_of(t, 'o', o),
                        probe.copied.out_at(o) ? ops::emit(side.graph, "copy", {outputs[o]}) : outputs[o]);
  }
  return side;
}

// The worst place, if a result of this task is not what the oracle says; empty if all agree.
std::string difference(const Probe& probe, const std::vector<std::vector<double>>& results) {
  const Oracle oracle = ask_oracle(*probe.op, probe.example, kSeed, probe.copied);
  double worst = kAllowance;
  std::string where;
  for (size_t o = 0; o < results.size(); ++o)
    for (size_t i = 0; i < results[o].size(); ++i) {
      const double error = in_tolerances(results[o][i], oracle.results[o][i], oracle.magnitudes[o][i],
                                         probe.copied.out_at(o) ? DType::f16 : DType::f32);
      if (error <= worst) continue;
      worst = error;
      where = fmt::format("{}, output {} element {}: {} instead of {}", key_of(probe), o, i, results[o][i],
                          oracle.results[o][i]);
    }
  return where;
}

void run_and_compare(device::Device& device, std::span<const Task* const> tasks, Verdicts& verdicts) {
  std::vector<const Probe*> probes;
  for (const Task* task : tasks) probes.push_back(&task->probe);
  const Forced forced(device, probes);
  const Side side = side_by_side(tasks);
  SessionOptions options;
  options.compile.fuse = options.compile.hoist = false;  // the nodes are rewritten already
  const Tensors outputs = run_once(device, side.graph, side.inputs, options);
  for (size_t t = 0; t < tasks.size(); ++t) {
    std::vector<std::vector<double>> results;
    for (size_t o = 0; outputs.contains(name_of(t, 'o', o)); ++o) results.push_back(outputs.at(name_of(t, 'o', o)));
    const std::string where = difference(tasks[t]->probe, results);
    verdicts.note(tasks[t]->trial, where.empty() ? Verdict::ok : Verdict::wrong, where);
  }
}

// --- together, then alone -------------------------------------------------------------------------------------------
// Two candidates of one node cannot be forced in one program.
std::vector<std::vector<const Task*>> without_clashes(const std::vector<const Task*>& tasks) {
  std::vector<std::vector<const Task*>> groups;
  std::vector<std::set<std::string>> keys;
  for (const Task* task : tasks) {
    const std::string key = key_of(task->probe);
    size_t g = 0;
    while (g < groups.size() && keys[g].contains(key)) ++g;
    if (g == groups.size()) groups.emplace_back(), keys.emplace_back();
    groups[g].push_back(task);
    keys[g].insert(key);
  }
  return groups;
}

bool try_together(device::Device& device, const std::vector<const Task*>& tasks, Verdicts& verdicts) {
  std::vector<Trial> trials;
  for (const Task* task : tasks) trials.push_back(task->trial);
  verdicts.begin(trials);
  try {
    run_and_compare(device, tasks, verdicts);
  } catch (const Error&) {
    return false;
  }
  verdicts.end();
  return true;
}

// False if the driver refused it: then it may refuse everything else as well (a lost device), which is for the next
// process to find out.
bool try_alone(device::Device& device, const Task& task, Verdicts& verdicts) {
  verdicts.begin({task.trial});
  std::string refusal;
  try {
    const Task* const one[] = {&task};
    run_and_compare(device, one, verdicts);
  } catch (const Error& error) {
    refusal = error.what();
    verdicts.note(task.trial, Verdict::refused, refusal);
  }
  verdicts.end();
  return refusal.empty();
}

bool try_all(device::Device& device, const std::vector<Task>& tasks, Verdicts& verdicts) {
  std::vector<const Task*> together;
  for (const Task& task : tasks)
    if (!verdicts.suspect(task.trial))
      together.push_back(&task);
    else if (!try_alone(device, task, verdicts))
      return false;
  for (const auto& group : without_clashes(together)) {
    if (try_together(device, group, verdicts)) continue;
    for (const Task* task : group)
      if (!try_alone(device, *task, verdicts)) return false;
  }
  return true;
}

}  // namespace

void try_kernels(device::Device& device, const std::vector<ir::Graph>& programs, const CompileOptions& options) {
  if (!applies_to(device)) return;
  Verdicts verdicts(device, device.trials_folder);
  device.left_out = verdicts.left_out();
  if (!verdicts.may_try()) return;
  try {
    for (bool usable = true; usable;) {
      const std::vector<Task> tasks = unknown_kernels(device, programs, options, verdicts);
      if (tasks.empty()) return;
      usable = try_all(device, tasks, verdicts);
      device.left_out = verdicts.left_out();
    }
  } catch (const Error&) {  // no marker can be written, or the program has a fault: compiling it says which
  }
}

std::string load_left_out(device::Device& device) {
  if (!applies_to(device)) return "";
  const Verdicts verdicts(device, device.trials_folder);
  device.left_out = verdicts.left_out();
  return verdicts.path() + ".txt";
}

}  // namespace situ::step
