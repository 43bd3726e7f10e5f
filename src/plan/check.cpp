// check.cpp -- a proof by replay. Memory is a map from byte ranges to the value they hold; each launch must find its
// operands whole, and its results then own their ranges. Knows nothing of lifetimes or aliasing rules, so it also
// catches mistakes in those.
#include <map>

#include "base/error.h"
#include "ir/text.h"
#include "plan/plan.h"

namespace situ::plan {
namespace {

using ir::Node;
using ir::Value;

size_t at(Value v) { return static_cast<size_t>(v); }

class Memory {
 public:
  void hold(int64_t begin, int64_t end, Value label) {
    clear(begin, end);
    ranges_[begin] = {end, label};
  }
  bool holds(int64_t begin, int64_t end, Value label) const {
    for (int64_t position = begin; position < end;) {
      auto it = ranges_.upper_bound(position);
      if (it == ranges_.begin()) return false;
      --it;
      if (it->second.label != label || it->second.end <= position) return false;
      position = it->second.end;
    }
    return true;
  }

 private:
  struct Range {
    int64_t end;
    Value label;
  };
  void clear(int64_t begin, int64_t end) {
    auto it = ranges_.lower_bound(begin);
    if (it != ranges_.begin() && std::prev(it)->second.end > begin) it = std::prev(it);
    while (it != ranges_.end() && it->first < end) {
      const int64_t first = it->first;
      const Range range = it->second;
      it = ranges_.erase(it);
      if (first < begin) ranges_[first] = {begin, range.label};
      if (range.end > end) it = ranges_.emplace(end, Range{range.end, range.label}).first;
    }
  }
  std::map<int64_t, Range> ranges_;
};

class Checker {
 public:
  Checker(const ir::Graph& graph, const Plan& plan, const device::Target& target)
      : graph_(graph), plan_(plan), target_(target), parts_(parts_of(graph)) {}

  void run() {
    for (const Node& node : graph_.nodes)
      if (ir::is_source(node.op)) define(node.outputs[0]);
    for (const Node& node : graph_.nodes) {
      if (is_launch(node)) launch(node);
      if (node.op == "write" || node.op == "output") expect_whole(node, node.inputs[0]);
    }
    for (const Node& node : graph_.nodes)  // and still there when the program has ended
      if (node.op == "write" || node.op == "output") expect_whole(node, node.inputs[0]);
  }

 private:
  struct Range {
    int slab;
    int64_t begin, end;
  };
  int64_t element(Value v) const { return target_.bytes(graph_.type(v).dtype); }
  // Of the root: base of the whole storage, from any of its parts.
  Range root_range(Value v) const {
    const Placement& p = plan_.of[at(v)];
    const int64_t begin = p.offset - parts_[at(v)].offset * element(v);
    const Value root = parts_[at(v)].root;
    return {p.slab, begin, begin + graph_.type(root).count() * element(root)};
  }

  // Reads of one state share one label, whichever node reads.
  Value label(Value v) {
    const Value root = parts_[at(v)].root;
    const Node& node = graph_.producer(root);
    if (!ir::is_source(node.op)) return root;
    return sources_.try_emplace(node.op + ir::to_string(node.attrs) + to_string(graph_.type(root)), root).first->second;
  }

  void define(Value v) {
    const Range r = root_range(v);
    SITU_ASSERT(r.begin >= device::kZeroRun, "%{} lies in the zero run", v);
    Memory& memory = slabs_[r.slab];
    const Value mark = label(v);
    const bool part = parts_[at(v)].root != v;
    if (part && started_[mark] && !memory.holds(r.begin, r.end, mark))
      report_bug(__FILE__, __LINE__, "a concat keeps its parts", fmt::format("%{} of {}", v, graph_.name));
    started_[mark] = true;
    memory.hold(r.begin, r.end, mark);
  }

  void expect_whole(const Node& node, Value v) {
    const Range r = root_range(v);
    SITU_ASSERT(slabs_[r.slab].holds(r.begin, r.end, label(v)), "in {}, %{} was overwritten before: {}", graph_.name, v,
                ir::print(graph_, node));
  }

  bool overlaps(Value a, Value b) const {
    const Placement &pa = plan_.of[at(a)], &pb = plan_.of[at(b)];
    if (pa.slab != pb.slab) return false;
    const Shape &sa = graph_.type(a).shape, &sb = graph_.type(b).shape;
    const int64_t ea = pa.offset + ((sa.rows() - 1) * pa.pitch + sa.cols()) * element(a);
    const int64_t eb = pb.offset + ((sb.rows() - 1) * pb.pitch + sb.cols()) * element(b);
    if (ea <= pb.offset || eb <= pa.offset) return false;
    if (pa.pitch != pb.pitch || parts_[at(a)].root != parts_[at(b)].root) return true;
    const int64_t ca = parts_[at(a)].offset % pa.pitch, cb = parts_[at(b)].offset % pb.pitch;  // columns of one root
    return ca < cb + sb.cols() && cb < ca + sa.cols();
  }

  void launch(const Node& node) {
    for (Value v : node.inputs) expect_whole(node, v);
    const auto aliases = pairs_of(node, "alias");
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (overlaps(node.outputs[o], node.inputs[i])) check_alias(node, aliases, o, i);
      for (size_t p = 0; p < o; ++p)
        SITU_ASSERT(!overlaps(node.outputs[o], node.outputs[p]), "two results overlap: {}", ir::print(graph_, node));
    }
    for (Value v : node.outputs) define(v);
  }

  void check_alias(const Node& node, const std::vector<ops::Alias>& aliases, size_t o, size_t i) const {
    const Placement &out = plan_.of[at(node.outputs[o])], &in = plan_.of[at(node.inputs[i])];
    const bool same = out.offset == in.offset && out.pitch == in.pitch &&
                      graph_.type(node.outputs[o]).dtype == graph_.type(node.inputs[i]).dtype;
    bool declared = false;  // directly, or as another operand that is the same value
    for (auto [a, b] : aliases)
      declared = declared || (a == static_cast<int>(o) && node.inputs[static_cast<size_t>(b)] == node.inputs[i]);
    SITU_ASSERT(same && declared, "result {} overlaps operand {}: {}", o, i, ir::print(graph_, node));
  }

  const ir::Graph& graph_;
  const Plan& plan_;
  const device::Target& target_;
  const std::vector<Part> parts_;
  std::map<int, Memory> slabs_;
  std::map<std::string, Value> sources_;
  std::map<Value, bool> started_;
};

}  // namespace

void check(const ir::Graph& graph, const Plan& plan, const device::Target& target) {
  Checker(graph, plan, target).run();
}

}  // namespace situ::plan
