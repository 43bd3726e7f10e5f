// text.cpp -- printer, and a small recursive-descent parser over one line at a time.
#include "ir/text.h"

#include <cctype>
#include <cstdlib>

#include "base/error.h"

namespace situ::ir {
namespace {

class Cursor {
 public:
  explicit Cursor(std::string_view text) : rest_(text) {}

  void skip_space() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0]))) rest_.remove_prefix(1);
  }
  bool done() {
    skip_space();
    return rest_.empty();
  }
  bool peek(char c) {
    skip_space();
    return !rest_.empty() && rest_[0] == c;
  }
  bool accept(char c) {
    if (!peek(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail("expected `{}` before `{}`", c, rest_.substr(0, 20));
  }
  std::string word() {  // names of ops, states, attributes, types
    skip_space();
    size_t n = 0;
    auto is_word = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-' || c == '/';
    };
    while (n < rest_.size() && is_word(rest_[n])) ++n;
    if (n == 0) fail("expected a name before `{}`", rest_.substr(0, 20));
    return take(n);
  }
  std::string number() {
    skip_space();
    size_t n = 0;
    auto is_part = [&](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '+';
    };
    while (n < rest_.size() && is_part(rest_[n])) ++n;
    if (n == 0) fail("expected a number before `{}`", rest_.substr(0, 20));
    return take(n);
  }
  std::string quoted() {
    expect('"');
    std::string result;
    while (!rest_.empty() && rest_[0] != '"') {
      if (rest_[0] == '\\' && rest_.size() > 1) rest_.remove_prefix(1);
      result += rest_[0];
      rest_.remove_prefix(1);
    }
    expect('"');
    return result;
  }

 private:
  std::string take(size_t n) {
    std::string result(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return result;
  }
  std::string_view rest_;
};

int64_t to_integer(const std::string& text) {
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  if (*end) fail("`{}` is not an integer", text);
  return value;
}

bool looks_like_float(const std::string& text) { return text.find_first_of(".pxna") != std::string::npos; }

Ints integer_list(Cursor& c) {
  Ints result;
  c.expect('[');
  while (!c.peek(']')) {
    result.push_back(to_integer(c.number()));
    if (!c.accept(',')) break;
  }
  c.expect(']');
  return result;
}

Attr attribute_value(Cursor& c) {
  if (c.peek('"')) return c.quoted();
  if (c.peek('[')) return integer_list(c);
  const std::string text = c.number();
  if (!looks_like_float(text)) return to_integer(text);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (*end) fail("`{}` is not a number", text);
  return value;
}

Attrs attributes(Cursor& c) {
  Attrs attrs;
  if (!c.accept('{')) return attrs;
  while (!c.peek('}')) {
    const std::string name = c.word();
    c.expect('=');
    attrs.set(name, attribute_value(c));
    if (!c.accept(',')) break;
  }
  c.expect('}');
  return attrs;
}

Type type(Cursor& c) {
  const std::string name = c.word();
  for (DType dtype : {DType::f32, DType::i32, DType::f16})
    if (name == name_of(dtype)) return {dtype, Shape(integer_list(c))};
  fail("unknown element type `{}`: use f32, i32 or f16", name);
}

class Parser {
 public:
  Graph graph;
  void line(std::string_view text) {
    Cursor c(text);
    if (c.done() || c.peek('#')) return;
    if (c.peek('%')) return node(c, results(c));
    const std::string word = c.word();
    if (word == "program") {
      graph.name = c.word();
    } else if (word == "state") {
      State s;
      s.name = c.word();
      c.expect(':');
      s.type = type(c);
      s.attrs = attributes(c);
      graph.declare(s);
    } else {
      finish_node(c, word, {});
    }
    if (!c.done()) fail("the line goes on after its end");
  }

 private:
  std::vector<std::string> results(Cursor& c) {
    std::vector<std::string> names;
    do {
      c.expect('%');
      names.push_back(c.word());
    } while (c.accept(','));
    c.expect('=');
    return names;
  }
  void node(Cursor& c, const std::vector<std::string>& names) { finish_node(c, c.word(), names); }

  void finish_node(Cursor& c, const std::string& op, const std::vector<std::string>& names) {
    Values inputs;
    if (c.accept('(')) {
      while (!c.peek(')')) {
        c.expect('%');
        inputs.push_back(lookup(c.word()));
        if (!c.accept(',')) break;
      }
      c.expect(')');
    }
    const Attrs attrs = attributes(c);
    std::vector<Type> types;
    if (!names.empty()) {
      c.expect(':');
      do types.push_back(type(c));
      while (c.accept(','));
    }
    if (types.size() != names.size()) fail("{} results, but {} types", names.size(), types.size());
    const Node& made = graph.append(op, inputs, types, attrs);
    for (size_t i = 0; i < names.size(); ++i) names_.emplace_back(names[i], made.outputs[i]);
    if (!c.done()) fail("the line goes on after its end");
  }

  Value lookup(const std::string& name) const {
    for (auto it = names_.rbegin(); it != names_.rend(); ++it)
      if (it->first == name) return it->second;
    fail("value %{} is not defined above", name);
  }
  std::vector<std::pair<std::string, Value>> names_;
};

}  // namespace

std::string print(const Graph& graph, const Node& node) {
  std::string text, types;
  for (Value v : node.outputs) {
    text += fmt::format("{}%{}", text.empty() ? "" : ", ", v);
    types += (types.empty() ? " : " : ", ") + to_string(graph.type(v));
  }
  if (!text.empty()) text += " = ";
  text += node.op;
  if (!node.inputs.empty()) text += fmt::format("(%{})", fmt::join(node.inputs, ", %"));
  if (!node.attrs.empty()) text += " " + to_string(node.attrs);
  return text + types;
}

std::string print(const Graph& graph) {
  std::string text = fmt::format("program {}\n", graph.name);
  for (const State& s : graph.states)
    text +=
        fmt::format("state {} : {}{}{}\n", s.name, to_string(s.type), s.attrs.empty() ? "" : " ", to_string(s.attrs));
  for (const Node& node : graph.nodes) text += print(graph, node) + "\n";
  return text;
}

Graph parse(std::string_view text) {
  Parser parser;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    try {
      parser.line(text.substr(0, end));
    } catch (const Error& e) {
      fail("line {}: {}", number, e.what());
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::move(parser.graph);
}

Type parse_type(std::string_view text) {
  Cursor c(text);
  const Type result = type(c);
  if (!c.done()) fail("`{}` goes on after the type", text);
  return result;
}

Attrs parse_attrs(std::string_view text) {
  Cursor c(text);
  Attrs result = attributes(c);
  if (!c.done()) fail("`{}` goes on after the attributes", text);
  return result;
}

}  // namespace situ::ir
