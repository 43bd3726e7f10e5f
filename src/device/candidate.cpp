#include "device/candidate.h"

#include <algorithm>

namespace situ::device {

Expansion::Expansion(ir::Graph& graph, const ir::Node& node, std::vector<Type> out_types, ir::Values inputs,
                     std::vector<bool> steady, const Target& target)
    : graph_(graph),
      node_(node),
      inputs_(std::move(inputs)),
      steady_(std::move(steady)),
      target_(target),
      view_{node_.op, {}, std::move(out_types), node_.attrs},
      results_(node_.outputs.size(), ir::kNoValue) {
  for (ir::Value v : inputs_) view_.ins.push_back(graph.type(v));
}

ir::Values Expansion::launch_all(std::string_view kernel, const ir::Values& inputs, const std::vector<Type>& types,
                                 ir::Attrs attrs, const std::vector<ops::Alias>& aliases) {
  ir::Ints pairs;
  for (auto [out, in] : aliases) pairs.insert(pairs.end(), {out, in});
  if (!pairs.empty()) attrs.set("may_alias", pairs);
  return graph_.append(kernel, inputs, types, attrs).outputs;
}

ir::Value Expansion::launch(std::string_view kernel, const ir::Values& inputs, const Type& type, ir::Attrs attrs,
                            const std::vector<ops::Alias>& aliases) {
  return launch_all(kernel, inputs, {type}, std::move(attrs), aliases)[0];
}

void Expansion::launch_op(std::string_view kernel, const ir::Values& inputs) {
  std::vector<ops::Alias> aliases;
  if (const ops::OpDef& op = ops::get(node_.op); op.aliases)
    for (const ops::Alias& alias : op.aliases(view_))
      if (view_.out(alias.first) == view_.in(alias.second)) aliases.push_back(alias);
  const ir::Values made =
      launch_all(kernel, inputs, std::vector<Type>(view_.outs.begin(), view_.outs.end()), node_.attrs, aliases);
  for (size_t i = 0; i < made.size(); ++i) results_[i] = made[i];
}

std::string node_key(const ops::OpView& view) {
  std::string key(view.op);
  for (const Type& type : view.ins) key += " " + to_string(type);
  const std::string attrs = ir::to_string(view.attrs);
  return attrs.empty() ? key : key + " " + attrs;
}

double roofline_seconds(const ops::Cost& cost, const Target& target) {
  return std::max(cost.flops / target.peak_flops, cost.bytes / target.bandwidth) + target.launch_seconds;
}

}  // namespace situ::device
