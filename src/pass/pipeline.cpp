// pipeline.cpp -- the order of the passes.
#include "ir/dead_code.h"
#include "ir/verify.h"
#include "pass/pass.h"

namespace situ::pass {

std::vector<Stage> pipeline(const Options& options) {
  std::vector<Stage> stages = {
      {"dead_code", ir::dead_code},
      {"common_subexpressions", common_subexpressions},
      {"constant_folding", constant_folding},
      {"transpose_folding", transpose_folding},
  };
  if (options.fuse) {
    stages.push_back({"epilogue_fusion", epilogue_fusion});
    stages.push_back({"pointwise_fusion", pointwise_fusion});
    stages.push_back({"gradient_order", gradient_order});
    stages.push_back({"update_grouping", update_grouping});
    stages.push_back({"gradient_rows", gradient_rows});
  }
  stages.push_back({"dead_code", ir::dead_code});
  return stages;
}

ir::Graph optimise(ir::Graph graph, const Options& options) {
  for (const Stage& stage : pipeline(options)) {
    graph = stage.run(graph);
#ifndef NDEBUG
    ir::verify(graph);
#endif
  }
  return graph;
}

}  // namespace situ::pass
