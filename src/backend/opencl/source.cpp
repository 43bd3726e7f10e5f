// source.cpp -- textual inclusion, one line at a time.
#include "backend/opencl/source.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "base/error.h"

namespace situ::opencl {
namespace {

// The file an include line names, or empty for any other line.
std::string_view included_file(std::string_view line) {
  const auto skip_blanks = [&] { line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size())); };
  const auto skip_word = [&](std::string_view word) {
    skip_blanks();
    if (!line.starts_with(word)) return false;
    line.remove_prefix(word.size());
    return true;
  };
  if (!skip_word("#") || !skip_word("include") || !skip_word("\"")) return {};
  return line.substr(0, line.find('"'));
}

struct Assembler {
  const FindSource& find;
  std::set<std::string, std::less<>> seen;
  std::string text;

  void add(std::string_view file, std::string_view from) {
    if (!seen.emplace(file).second) return;
    const char* source = find(file);
    SITU_ASSERT(source != nullptr, "there is no kernel file '{}' (wanted by '{}')", file, from);
    text += fmt::format("#line 1 \"{}\"\n", file);
    add_lines(source, file);
  }

  void add_lines(std::string_view source, std::string_view file) {
    for (int line_number = 1; !source.empty(); ++line_number) {
      const size_t end = source.find('\n');
      const std::string_view line = source.substr(0, end);
      source.remove_prefix(end == std::string_view::npos ? source.size() : end + 1);
      if (const std::string_view include = included_file(line); !include.empty()) {
        add(include, file);
        text += fmt::format("#line {} \"{}\"\n", line_number + 1, file);
      } else {
        text.append(line).push_back('\n');
      }
    }
  }
};

}  // namespace

std::string assemble_source(const std::string& prelude, const std::string& file, const FindSource& find) {
  Assembler assembler{find, {}, {}};
  if (!prelude.empty()) {
    assembler.text = "#line 1 \"prelude\"\n";
    assembler.add_lines(prelude, "prelude");
  }
  assembler.add(file, "a call");
  return std::move(assembler.text);
}

// Drivers say too little about this (PoCL reports no local memory before the first launch), so the text is asked; a
// word in a comment only makes the answer more careful.
bool runs_in_any_group(std::string_view text) {
  constexpr std::string_view words[] = {"barrier",    "local",     "get_group_id", "get_num_groups",
                                        "work_group", "sub_group", "reqd_"};
  return std::none_of(std::begin(words), std::end(words),
                      [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

}  // namespace situ::opencl
