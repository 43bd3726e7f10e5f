// compile.h -- from programs as written to launches that a device can replay. compile.cpp is the first page to read.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "device/device.h"
#include "ir/graph.h"
#include "plan/plan.h"
#include "step/memory.h"

namespace situ::step {

struct CompileOptions {
  bool fuse = true;   // false: one node per op, as written
  bool hoist = true;  // false: every program computes everything itself
  // Called with (program, stage, text) after each stage: what `situ dump --after=STAGE` prints.
  std::function<void(const std::string&, const std::string&, const std::string&)> trace;
};

struct Program {
  std::string name;
  ir::Graph graph;  // launches in order
  plan::Plan plan;
  std::vector<device::LaunchSpec> launches;
};

struct Compiled {
  std::vector<Program> programs;  // in the order given; `prepare` comes last if anything was hoisted
  MemoryMap memory{{}, {}};       // what all programs share
};

Compiled compile(const std::vector<ir::Graph>& programs, const device::Device& device, const CompileOptions& options);

// A program after all rewrites, before its ops become launches: what the tuner looks at.
ir::Graph rewritten(const ir::Graph& program, const device::Device& device, const CompileOptions& options = {});

// Its launches, before what stays the same is moved to `prepare`: what the self-test looks at.
ir::Graph launch_list(const ir::Graph& program, const device::Device& device, const CompileOptions& options);

// How many distinct programs the device's driver compiles for all of them; 0 where kernels came with situ.
int64_t distinct_programs(const Compiled& compiled, const device::Device& device);

// The launch list with placements, one line each: golden files and `situ dump --after=place`.
std::string print_launches(const Program& program);

}  // namespace situ::step
