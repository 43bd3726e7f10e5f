// image_sheaves.cpp -- in a launch list, what lies between launches whose lanes are images stays in sheaves.
//
//   y = conv(..) {sheaves=0} : [N,H,W,C];  d = max_pool_grad(y, g);  t = interleave_images(d) : [N/L,H,W,C*L]
//   ->  y = conv(..) {sheaves=1} : [N/L,H,W,C*L];  t = max_pool_grad(y, g)
// Sheaves hold L images side by side behind each channel, which makes them images of C*L channels themselves: what
// treats all channels alike, as pooling does, needs no other kernel. A launch with the attribute `sheaves` makes
// either, one whose results are spread makes nothing else; others read what spread_images makes of sheaves. What comes
// as images between them is interleaved (a pooled gradient, a quarter of what it becomes), if all of that is less than
// what needs no interleaving and spreading any more.
// The sum of a gradient over its pixels, a bias's gradient, comes from the launch that reads its sheaves, which has
// `sums` then.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ops/update.h"
#include "pass/pass.h"

namespace situ::pass {
namespace {

using ir::Value;

bool treats_channels_alike(const ir::Graph& graph, const ir::Node& node) {
  return (node.op.starts_with("max_pool") || node.op.starts_with("avg_pool")) && node.outputs.size() == 1 &&
         std::ranges::all_of(node.inputs, [&](Value v) { return graph.type(v).shape.rank() == 4; });
}

// Images behind each channel, if the node makes sheaves of nothing but the images; else 0.
int64_t lanes_of(const ir::Graph& graph, const ir::Node& node) {
  if (node.op != "interleave_images") return 0;
  const Type &from = graph.type(node.inputs[0]), &to = graph.type(node.outputs[0]);
  const bool same = from.dtype == to.dtype && from.shape[1] == to.shape[1] && from.shape[2] == to.shape[2];
  return same && node.attrs.ints("before") == ir::Ints{0, 0} ? to.shape[3] / from.shape[3] : 0;
}

// The same of a node that makes images of sheaves.
int64_t lanes_spread(const ir::Graph& graph, const ir::Node& node) {
  if (node.op != "spread_images") return 0;
  return graph.type(node.inputs[0]).shape[3] / graph.type(node.outputs[0]).shape[3];
}

Type in_sheaves(const Type& type, int64_t lanes) {
  const Shape& s = type.shape;
  return {type.dtype, {ceil_div(s[0], lanes), s[1], s[2], s[3] * lanes}};
}

// Over all axes but the last, as either back end says it.
bool sums_pixels(const ir::Graph& graph, const ir::Node& node) {
  if (node.attrs.text("kind", "") != "sum" || graph.type(node.inputs[0]).shape.rank() != 4) return false;
  const bool columns =
      node.attrs.integer("first", -1) == 0 && node.attrs.integer("last", -1) == 3 && node.attrs.number("scale", 0) == 1;
  return columns || node.attrs.ints("axes", {}) == ir::Ints{0, 1, 2};
}

// A sum of pixels and the launch that can give it.
struct Sum {
  int launch = -1;
  Value value = ir::kNoValue;
};

struct Chain {
  std::set<Value> values;    // that stay in sheaves
  std::set<Value> spread;    // of those: that others read as images, too
  std::set<Value> gathered;  // that come as images
  std::map<int, Sum> sums;   // by the node that takes the sum now
  int64_t saved = 0;         // elements that need not be moved any more, less those that must be now
};

class Finder {
 public:
  explicit Finder(const ir::Graph& graph) : graph_(graph), users_(ir::users_of(graph)) {}

  std::optional<Chain> find() {
    for (const ir::Node& node : graph_.nodes) {
      lanes_ = lanes_of(graph_, node);
      if (lanes_ == 0) continue;
      const std::optional<Chain> chain = with(Chain{}, node.inputs[0]);
      if (chain && chain->saved > 0) return chain;
    }
    return std::nullopt;
  }
  int64_t lanes() const { return lanes_; }

 private:
  const std::vector<int>& users(Value v) const { return users_[static_cast<size_t>(v)]; }
  const ir::Node& node(int n) const { return graph_.nodes[static_cast<size_t>(n)]; }

  // The chain with this value and all that must then be in sheaves; nothing if something of that cannot be.
  std::optional<Chain> with(const Chain& before, Value v) {
    std::optional<Chain> chain = before;
    if (!chain->values.insert(v).second) return chain;
    const ir::Node& producer = graph_.producer(v);
    const int64_t count = graph_.type(v).count();
    if (lanes_spread(graph_, producer) == lanes_) {
      chain->saved += count;
    } else if (producer.attrs.integer("sheaves", 1) != 0) {  // it cannot make sheaves, or does already
      if (!treats_channels_alike(graph_, producer)) return std::nullopt;
      for (Value input : producer.inputs)
        if (auto more = with(*chain, input))
          chain = more;
        else if (chain->gathered.insert(input).second)
          chain->saved -= graph_.type(input).count();
    }
    for (int n : users(v)) {
      const ir::Node& user = node(n);
      if (lanes_of(graph_, user) == lanes_) {
        chain->saved += count;
        continue;
      }
      if (treats_channels_alike(graph_, user))
        if (auto more = with(*chain, user.outputs[0]); more && more->saved >= chain->saved - count) {
          chain = more;
          continue;
        }
      if (const Sum sum = sum_of(v, n); sum.launch >= 0)
        chain->sums[n] = sum;
      else
        chain->spread.insert(v);
    }
    if (chain->spread.contains(v)) chain->saved -= count;
    return chain;
  }

  // Parts of a sum may be as many as its launch likes if only updates read them (pass/gradient_parts.cpp).
  Sum sum_of(Value v, int n) const {
    if (!sums_pixels(graph_, node(n))) return {};
    const Value value = node(n).outputs[0];
    const std::vector<int>& readers = users(value);
    for (int i : users(v)) {
      if (lanes_of(graph_, node(i)) != lanes_) continue;
      for (int launch : users(node(i).outputs[0]))
        if (node(launch).attrs.has("sums") && node(launch).inputs[1] == node(i).outputs[0] &&
            std::ranges::all_of(readers, [&](int r) { return r > launch && ops::is_update(node(r).op); }))
          return {launch, value};
    }
    return {};
  }

  const ir::Graph& graph_;
  const std::vector<std::vector<int>> users_;
  int64_t lanes_ = 0;
};

class Rewriter {
 public:
  Rewriter(const ir::Graph& graph, const Chain& chain, int64_t lanes)
      : graph_(graph), chain_(chain), lanes_(lanes), rebuild_(graph) {
    for (const auto& [n, sum] : chain.sums) sum_of_[sum.launch] = sum.value;
  }

  ir::Graph run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const ir::Node& node = graph_.nodes[n];
      const int index = static_cast<int>(n);
      if (chain_.sums.contains(index)) continue;
      if (lanes_of(graph_, node) == lanes_ && chain_.values.contains(node.inputs[0]))
        rebuild_.map(node.outputs[0], sheaves_.at(node.inputs[0]));
      else if (sum_of_.contains(index))
        copy_with_sum(node, sum_of_.at(index));
      else if (node.outputs.empty() || !chain_.values.contains(node.outputs[0]))
        rebuild_.copy(node);
      else if (node.op == "spread_images")
        spread_if_read(node);
      else
        copy_in_sheaves(node);
    }
    return std::move(rebuild_.to);
  }

 private:
  void spread_if_read(const ir::Node& node) {
    const Value v = node.outputs[0];
    sheaves_[v] = rebuild_(node.inputs)[0];
    if (!chain_.spread.contains(v))
      rebuild_.map(v, sheaves_[v]);
    else
      rebuild_.copy(node);
  }

  Value gather(const ir::Node& reader, Value images) {
    if (!sheaves_.contains(images))
      sheaves_[images] = append(reader, "interleave_images", {rebuild_(ir::Values{images})[0]},
                                {in_sheaves(graph_.type(images), lanes_)}, {{"before", ir::Ints{0, 0}}})[0];
    return sheaves_[images];
  }

  void copy_in_sheaves(const ir::Node& node) {
    const Value v = node.outputs[0];
    const Type& type = graph_.type(v);
    ir::Attrs attrs = node.attrs;
    ir::Values inputs;
    if (attrs.has("sheaves")) {
      attrs.set("sheaves", int64_t{1});
      inputs = rebuild_(node.inputs);
    } else {
      for (Value input : node.inputs) inputs.push_back(gather(node, input));
    }
    sheaves_[v] = append(node, node.op, inputs, {in_sheaves(type, lanes_)}, attrs)[0];
    if (chain_.spread.contains(v))
      rebuild_.map(v, append(node, "spread_images", {sheaves_[v]}, {type}, {})[0]);
    else
      rebuild_.map(v, sheaves_[v]);
  }

  void copy_with_sum(const ir::Node& node, Value sum) {
    ir::Attrs attrs = node.attrs;
    attrs.set("sums", int64_t{1});
    const Type& type = graph_.type(node.outputs[0]);
    const int64_t parts = attrs.integer("splits"), channels = type.shape.cols();
    const ir::Values fresh = append(node, node.op, rebuild_(node.inputs), {type, f32({parts, channels})}, attrs);
    rebuild_.map(node.outputs[0], fresh[0]);
    rebuild_.map(sum, fresh[1]);
  }

  ir::Values append(const ir::Node& like, const std::string& op, const ir::Values& inputs,
                    const std::vector<Type>& types, const ir::Attrs& attrs) {
    const ir::Values fresh = rebuild_.to.append(op, inputs, types, attrs).outputs;
    rebuild_.to.nodes.back().origin = like.origin;
    return fresh;
  }

  const ir::Graph& graph_;
  const Chain& chain_;
  const int64_t lanes_;
  ir::Rebuild rebuild_;
  std::map<Value, Value> sheaves_;  // the new names of the chain's values
  std::map<int, Value> sum_of_;     // by the launch that gives it
};

}  // namespace

ir::Graph image_sheaves(const ir::Graph& graph) {
  Finder finder(graph);
  const std::optional<Chain> chain = finder.find();
  return chain ? image_sheaves(Rewriter(graph, *chain, finder.lanes()).run()) : graph;
}

}  // namespace situ::pass
