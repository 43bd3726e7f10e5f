// tuner.h -- which candidate of a node is the fastest on this device: measured, not estimated.
//
// Each node with a choice is run by itself, its operands resident, all its candidates in turn and in rounds, so that a
// disturbance hits them alike; the best block of each counts. Before it is timed, a candidate's result is compared:
// with the oracle's where that is quickly computed, else with that of the candidate the estimate chose. One that
// differs is never chosen. What is fastest alone may still slow a step down, because its neighbours lay out their
// results otherwise, so whole steps have the last word.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "ir/graph.h"

namespace situ::tune {

struct Measurement {
  std::string candidate;
  double seconds = 0;  // of the node, packing included
  bool wrong = false;
};
struct NodeResult {
  std::string node;                     // device::node_key
  int64_t times = 0;                    // how often it occurs in the programs
  std::vector<Measurement> candidates;  // the estimate's choice first
  double noise = 0;                     // seconds by which two measurements of the same may differ
  bool slows_the_step = false;          // then the estimate's choice stays
  const Measurement& best() const;
  bool changed() const { return &best() != &candidates.front(); }
  double saved() const { return static_cast<double>(times) * (candidates.front().seconds - best().seconds); }
};

struct Progress {
  size_t done = 0, total = 0;
  std::string node;
};
struct Options {
  double seconds = 60;  // of which nodes get the greater part, the costliest first, and whole steps the rest
  std::function<void(const Progress&)> progress;
};

// Seconds of a step with each of two sets of choices, taken in turn.
using CompareSteps = std::function<std::pair<double, double>(const device::Choices& a, const device::Choices& b)>;

// Marks the choices without which a step is faster: one by one until `time_is_up`, and all if it is faster without any.
void confirm(std::vector<NodeResult>& results, const CompareSteps& compare, const std::function<bool()>& time_is_up);

// Whether two results are the same but for rounding (`rounding`: relative, of each element besides); a NaN agrees with
// none.
bool agree(const std::vector<float>& a, const std::vector<float>& b, double rounding = 0);

// Measures the nodes of these programs (step/programs.h), and whole runs of the first. The device's choices are left as
// they were.
std::vector<NodeResult> tune(device::Device& device, const std::vector<ir::Graph>& programs, const Options& options);

}  // namespace situ::tune
