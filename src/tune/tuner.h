// tuner.h -- which candidate of a node is the fastest on this device: measured, not estimated.
//
// Each node with a choice is run by itself, its operands resident, all its candidates in turn and in rounds, so that a
// disturbance hits them alike; the best block of each counts. Before it is timed, a candidate's result is compared:
// with the oracle's where that is quickly computed, else with that of the candidate the estimate chose. One that
// differs is never chosen.
#pragma once
#include <functional>
#include <string>
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
  const Measurement& best() const;
  double saved() const { return static_cast<double>(times) * (candidates.front().seconds - best().seconds); }
};

struct Progress {
  size_t done = 0, total = 0;
  std::string node;
};
struct Options {
  double seconds = 60;  // stops beginning new nodes after this long; the costliest come first
  std::function<void(const Progress&)> progress;
};

// Whether two results are the same but for rounding (`rounding`: relative, of each element besides); a NaN agrees with
// none.
bool agree(const std::vector<float>& a, const std::vector<float>& b, double rounding = 0);

// Measures the nodes of these programs (step/programs.h). The device's choices are left as they were.
std::vector<NodeResult> tune(device::Device& device, const std::vector<ir::Graph>& programs, const Options& options);

}  // namespace situ::tune
