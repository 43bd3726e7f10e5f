// conv_chains.cpp -- a depthwise convolution and the 1x1 convolutions around it, or a network's first one before it,
// become one node (ops/conv_chain.h), for devices that keep what lies between in a core's caches:
//
//   a = conv2d(x, v, ..); b = conv2d(a, w, ..) {groups=C}; y = conv2d(b, u, ..)
//     -> y = conv_chain(x, v, .., w, .., u, ..)
// Only where nothing else reads a and b: in networks or parts of networks that are not trained. The device's tuning
// says how many weights a chain may have, since every core reads all of them, and of how many pixels an image must be,
// since small images fill register tiles only together. Where all images have few pixels (`chain.together`), the first
// two are one node however many weights they have: that is cut by channels, and each core reads its share. The new node
// stands where the last one stood.
#include <map>
#include <string>

#include "ops/conv_chain.h"
#include "ops/window.h"
#include "pass/pass.h"

namespace situ::pass {
namespace {

using ir::Value;
constexpr size_t kNone = ~size_t{0};
constexpr int64_t kMostTogetherTerms = 256;  // of a result: such rows are packed in one piece

struct Links {
  size_t expand = kNone, depthwise = kNone, project = kNone;
};

class Chains {
 public:
  Chains(const ir::Graph& graph, const device::Tuning& tuning)
      : graph_(graph),
        users_(ir::users_of(graph)),
        most_weights_(tuning.get("chain.weights", 0)),
        least_pixels_(tuning.get("chain.pixels", 1)),
        together_(tuning.get("chain.together", 0)) {}

  ir::Graph run() const {
    std::map<size_t, Links> at;  // by the node that ends a chain
    std::vector<bool> gone(graph_.nodes.size());
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Links links = links_of(n, gone);
      if (links.depthwise == kNone) continue;
      at[links.project != kNone ? links.project : n] = links;
      for (size_t node : {links.expand, links.depthwise, links.project})
        if (node != kNone) gone[node] = true;
    }
    ir::Rebuild rebuild(graph_);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (const auto it = at.find(n); it != at.end())
        emit(rebuild, it->second);
      else if (!gone[n])
        rebuild.copy(graph_.nodes[n]);
    }
    return std::move(rebuild.to);
  }

 private:
  const ir::Node& node(size_t n) const { return graph_.nodes[n]; }
  const Shape& shape(Value v) const { return graph_.type(v).shape; }
  const Shape& image(size_t n) const { return shape(node(n).inputs[0]); }
  bool is_conv(size_t n) const { return node(n).op == "conv2d" && graph_.type(node(n).outputs[0]).dtype == DType::f32; }
  int64_t weights(size_t n) const { return n == kNone ? 0 : shape(node(n).inputs[1]).count(); }
  bool read_once(size_t n) const { return users_[static_cast<size_t>(node(n).outputs[0])].size() == 1; }

  bool is_depthwise(size_t n) const {
    if (!is_conv(n)) return false;
    const Shape &x = image(n), &w = shape(node(n).inputs[1]);
    const int64_t groups = node(n).attrs.integer("groups", 1);
    return groups > 1 && groups == x[3] && groups == w[3] && ops::chain_takes_inside(node(n).attrs) &&
           ops::chain_takes(node(n).attrs, {x[1], x[2]}, {w[0], w[1]});
  }
  // Whether this convolution and the depthwise one behind it may be cut by channels.
  bool is_cut_by_channels(size_t n) const {
    return n != kNone && is_pointwise(n) && image(n).rows() <= together_ && image(n)[3] <= kMostTogetherTerms;
  }
  bool begins(size_t n) const {
    return is_conv(n) && (image(n)[1] * image(n)[2] >= least_pixels_ || is_cut_by_channels(n)) &&
           ops::chain_begins(node(n).attrs, image(n), shape(node(n).inputs[1]));
  }
  bool is_pointwise(size_t n) const {
    if (!is_conv(n) || node(n).attrs.integer("groups", 1) != 1) return false;
    const Shape &x = image(n), &w = shape(node(n).inputs[1]);
    return ops::is_pointwise(ops::window_of(node(n).attrs, {x[1], x[2]}, {w[0], w[1]}));
  }

  // The convolution before the depthwise one, whose only reader it is; kNone: there is none.
  size_t expand_of(size_t n) const {
    const Value x = node(n).inputs[0];
    const auto made = static_cast<size_t>(graph_.values[static_cast<size_t>(x)].producer);
    return begins(made) && read_once(made) && ops::chain_takes_inside(node(made).attrs) ? made : kNone;
  }
  // The one behind it. It may read the depthwise result as its image only.
  size_t project_of(size_t n) const {
    if (!read_once(n)) return kNone;
    const Value y = node(n).outputs[0];
    const auto user = static_cast<size_t>(users_[static_cast<size_t>(y)].front());
    if (!is_pointwise(user) || image(user)[1] * image(user)[2] < least_pixels_ || node(user).inputs[0] != y)
      return kNone;
    for (size_t i = 1; i < node(user).inputs.size(); ++i)
      if (node(user).inputs[i] == y) return kNone;
    return user;
  }

  // The chain around depthwise convolution n: as many of the three as the weights allow, none of which is gone.
  Links links_of(size_t n, const std::vector<bool>& gone) const {
    if (most_weights_ == 0 || !is_depthwise(n)) return {};
    Links links{expand_of(n), n, project_of(n)};
    if (links.expand != kNone && gone[links.expand]) links.expand = kNone;
    if (weights(links.expand) + weights(links.project) > most_weights_) links.project = kNone;
    if (weights(links.expand) > most_weights_ && !is_cut_by_channels(links.expand)) links.expand = kNone;
    return links.expand == kNone && links.project == kNone ? Links{} : links;
  }

  void emit(ir::Rebuild& rebuild, const Links& links) const {
    const size_t first = links.expand != kNone ? links.expand : links.depthwise;
    const size_t last = links.project != kNone ? links.project : links.depthwise;
    ir::Values inputs{node(first).inputs[0]};
    ir::Attrs attrs;
    const auto add = [&](size_t n, const char* name) {
      if (n == kNone) return;
      inputs.insert(inputs.end(), node(n).inputs.begin() + 1, node(n).inputs.end());
      attrs.set(name, node(n).attrs.text("epilogue", ""));
    };
    add(links.expand, "expand");
    add(links.depthwise, "depthwise");
    add(links.project, "project");
    for (const std::string name : {"stride", "pad"}) {
      if (const auto* value = node(links.depthwise).attrs.find(name)) attrs.set(name, *value);
      if (links.expand == kNone) continue;
      if (const auto* value = node(links.expand).attrs.find(name)) attrs.set("expand_" + name, *value);
    }
    const Value y = node(last).outputs[0];
    rebuild.map(y, rebuild.to.append("conv_chain", rebuild(inputs), {graph_.type(y)}, attrs).outputs[0]);
    rebuild.to.nodes.back().origin = node(links.depthwise).origin;
  }

  const ir::Graph& graph_;
  const std::vector<std::vector<int>> users_;
  const int64_t most_weights_, least_pixels_, together_;
};

}  // namespace

ir::Graph conv_chains(const ir::Graph& graph, const device::Tuning& tuning) { return Chains(graph, tuning).run(); }

}  // namespace situ::pass
