// compile.cpp -- the stages, in order:
//
//   expansion -> passes -> lower -> hoist   per program: the graph rewritten, ops as launches, steady parts moved to
//   `prepare` memory map                 for all programs together: batch, control block, constants, states views ->
//   settle -> order -> in_place -> place -> check -> launches     per program again
#include "step/compile.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "ops/op.h"
#include "pass/pass.h"

namespace situ::step {
namespace {

class Compiler {
 public:
  Compiler(const device::Device& device, const CompileOptions& options) : device_(device), options_(options) {}

  Compiled run(const std::vector<ir::Graph>& written) {
    std::vector<ir::Graph> lowered;
    ir::Graph prepare;
    prepare.name = "prepare";
    for (const ir::Graph& graph : written) lowered.push_back(front(graph, prepare));
    if (!prepare.nodes.empty()) lowered.push_back(stage("hoist", pass::common_subexpressions(prepare)));
    Compiled result{{}, MemoryMap(lowered, device_.target())};
    for (const ir::Graph& graph : lowered) result.programs.push_back(back(graph, result.memory));
    return result;
  }

  ir::Graph rewrite(const ir::Graph& written) {
    ir::Graph graph = stage("expansion", pass::expansion(stage("model", written), device_));
    for (const pass::Stage& pass : pass::pipeline({options_.fuse})) graph = stage(pass.name, pass.run(graph));
    if (!options_.fuse) return graph;
    graph = stage("norm_fusion", pass::norm_fusion(graph, device_));
    graph = stage("gradient_factors", pass::gradient_factors(graph, device_.target().tuning));
    return stage("conv_chains", pass::conv_chains(graph, device_.target().tuning));
  }

  ir::Graph lower(const ir::Graph& written) {
    // Two nodes may have asked for the same rearranged operand: packed or interleaved, it is made once.
    ir::Graph graph = pass::common_launches(plan::lower(rewrite(written), device_).graph);
    if (options_.fuse) {
      graph = pass::joint_gradients(pass::gradient_parts(graph));
      if (ir::Graph sheaves = pass::image_sheaves(graph); runs(sheaves)) graph = std::move(sheaves);
    }
    return stage("lower", std::move(graph));
  }

 private:
  // Whether the self-test left out none of the kernels that ops have by their own names, in the shapes they got.
  bool runs(const ir::Graph& launches) const {
    return device_.left_out.empty() || std::ranges::none_of(launches.nodes, [&](const ir::Node& node) {
             return plan::is_launch(node) && ops::find(node.op) != nullptr &&
                    device_.left_out.contains(plan::unit_of(device_, ops::view_of(launches, node), nullptr));
           });
  }

  ir::Graph stage(const std::string& name, ir::Graph graph) {
    ir::verify(graph);
    if (options_.trace) options_.trace(graph.name, name, ir::print(graph));
    return graph;
  }

  ir::Graph front(const ir::Graph& written, ir::Graph& prepare) {
    ir::Graph graph = lower(written);
    if (options_.hoist) {
      plan::Hoisted hoisted = plan::hoist(graph);
      append(prepare, hoisted.prepare);
      graph = stage("hoist", std::move(hoisted.program));
    }
    return options_.fuse ? stage("launch_groups", pass::launch_groups(graph)) : graph;
  }

  // Adds the nodes of one program's prepare part; derived states another program already asked for are made once.
  static void append(ir::Graph& prepare, const ir::Graph& part) {
    for (const ir::State& state : part.states) prepare.declare(state);
    ir::Rebuild rebuild(part);
    std::swap(rebuild.to, prepare);
    for (const ir::Node& node : part.nodes) {
      bool known = false;
      if (node.op == "write")
        for (const ir::Node& other : rebuild.to.nodes)
          known = known || (other.op == "write" && other.attrs == node.attrs);
      if (!known) rebuild.copy(node);
    }
    std::swap(rebuild.to, prepare);
  }

  Program back(ir::Graph graph, MemoryMap& memory) {
    graph = stage("views", plan::materialise_views(graph));
    graph = stage("settle", plan::settle_writes(graph));
    graph = stage("order", plan::order(graph));
    graph = stage("in_place", plan::in_place(graph));
    ir::fill_origins(graph);
    Program program{graph.name, graph, plan::place(graph, device_.target(), memory), {}};
    plan::check(program.graph, program.plan, device_.target());
    program.launches = plan::launches_of(program.graph, program.plan);
    if (options_.trace) options_.trace(program.name, "place", print_launches(program));
    return program;
  }

  const device::Device& device_;
  const CompileOptions& options_;
};

std::string print_argument(const device::TensorArg& t) {
  return fmt::format("{}@{}:{}{}", to_string(t.type), t.slab, t.offset,
                     t.pitch == t.cols() ? "" : fmt::format("/{}", t.pitch));
}

}  // namespace

Compiled compile(const std::vector<ir::Graph>& programs, const device::Device& device, const CompileOptions& options) {
  return Compiler(device, options).run(programs);
}

ir::Graph rewritten(const ir::Graph& program, const device::Device& device, const CompileOptions& options) {
  CompileOptions quiet = options;
  quiet.trace = nullptr;
  return Compiler(device, quiet).rewrite(program);
}

ir::Graph launch_list(const ir::Graph& program, const device::Device& device, const CompileOptions& options) {
  CompileOptions quiet = options;
  quiet.trace = nullptr;
  return Compiler(device, quiet).lower(program);
}

int64_t distinct_programs(const Compiled& compiled, const device::Device& device) {
  if (device.target().kernels.empty()) return 0;
  std::set<std::string> programs;
  for (const Program& program : compiled.programs)
    for (const device::LaunchSpec& launch : program.launches) programs.insert(device.program_of(launch));
  return static_cast<int64_t>(programs.size());
}

std::string print_launches(const Program& program) {
  std::string text = fmt::format("program {}: {} launches, arena {} bytes\n", program.name, program.launches.size(),
                                 program.plan.arena_bytes());
  for (size_t i = 0; i < program.launches.size(); ++i) {
    const device::LaunchSpec& launch = program.launches[i];
    std::vector<std::string> in, out;
    for (const auto& t : launch.in) in.push_back(print_argument(t));
    for (const auto& t : launch.out) out.push_back(print_argument(t));
    ir::Attrs attrs = launch.node.attrs;
    attrs.erase("flops");
    text += fmt::format("{:4} {}({}) -> {} {}\n", i, launch.node.op, fmt::join(in, ", "), fmt::join(out, ", "),
                        ir::to_string(attrs));
  }
  return text;
}

}  // namespace situ::step
