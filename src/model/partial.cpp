#include "model/partial.h"

#include <algorithm>

#include "base/error.h"
#include "base/names.h"
#include "model/build.h"
#include "model/init.h"

namespace situ::model {
namespace {

bool any_matches(const std::vector<std::string>& patterns, std::string_view name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) { return matches(p, name); });
}

bool is_lora(std::string_view parameter) {
  return parameter.ends_with(".lora_A.weight") || parameter.ends_with(".lora_B.weight");
}

// The states of a model, from a graph nobody runs.
std::vector<ir::State> states_of(const Model& model) {
  ir::Graph graph;
  build(model, graph, graph.input("x", batch_of(1, model.input)));
  return graph.states;
}

}  // namespace

bool Partial::trains(std::string_view parameter) const {
  if (everything() || (lora.rank > 0 && is_lora(parameter))) return true;
  return any_matches(patterns, parameter);
}

bool Partial::adapts(std::string_view layer) const {
  return lora.rank > 0 && (lora.targets.empty() || any_matches(lora.targets, layer));
}

Partial parse_partial(const Model& model, std::string_view what) {
  Partial partial;
  if (what.empty() || what == "all") return partial;
  std::vector<std::string> names;
  for (const ir::State& state : states_of(model))
    if (has_role(state, "parameter")) names.push_back(state.name);
  if (what == "bias") {
    partial.patterns = {"*.bias"};
  } else if (what == "last") {
    if (names.empty()) fail("model {} has no parameters to train", model.name);
    partial.patterns = {names.back().substr(0, names.back().rfind('.')) + ".*"};
  } else {
    partial.patterns = split_list(what, ',');
  }
  for (const std::string& pattern : partial.patterns)
    if (std::none_of(names.begin(), names.end(), [&](const std::string& n) { return matches(pattern, n); }))
      fail("no parameter of {} is named `{}`: use all, last, bias or patterns such as '{}'", model.name, pattern,
           names.empty() ? "fc.*" : names.back().substr(0, names.back().rfind('.')) + ".*");
  return partial;
}

}  // namespace situ::model
