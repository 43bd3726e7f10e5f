// run.h -- a session set to a new model's values; and one program, once, with its inputs by name: for tests and
// self-tests, where a session would be ceremony.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "step/session.h"

namespace situ::step {

using Tensors = std::map<std::string, std::vector<double>>;

// Runs a program's inputs through a session of its own, in memory that is not zero; returns its outputs.
Tensors run_once(device::Device& device, const ir::Graph& graph, const Tensors& inputs,
                 const SessionOptions& options = {});

// Every state as a new model has it: parameters drawn by the seed, the rest as their attributes say.
void set_initial_values(Session& session, uint64_t seed);

}  // namespace situ::step
