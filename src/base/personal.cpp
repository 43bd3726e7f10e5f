#include "base/personal.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>

namespace situ {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

void add_path(Pairs& paths, std::string path, const std::string& instead) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path.size() > 1) paths.emplace_back(path, instead);
  std::error_code error;
  const std::string real = std::filesystem::weakly_canonical(path, error).string();  // drivers may print this one
  if (!error && real.size() > 1 && real != path) paths.emplace_back(real, instead);
}

void add_name(Pairs& names, const char* name, const std::string& instead) {
  const std::string text = name ? name : "";
  if (!text.empty() && text != "root" && text != "localhost") names.emplace_back(text, instead);
}

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string replaced(std::string text, const std::string& from, const std::string& to, bool whole) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    const size_t end = at + from.size();
    if (whole && ((at > 0 && in_word(text[at - 1])) || (end < text.size() && in_word(text[end])))) {
      at = end;
      continue;
    }
    text.replace(at, from.size(), to);
    at += to.size();
  }
  return text;
}

void longest_first(Pairs& pairs) {
  std::ranges::stable_sort(pairs, [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
}

}  // namespace

Personal personal_data(const Pairs& folders) {
  Personal personal;
  for (const auto& [path, instead] : folders) add_path(personal.paths, path, instead);
  const passwd* entry = getpwuid(getuid());
  if (const char* home = std::getenv("HOME")) add_path(personal.paths, home, "HOME");
  if (entry && entry->pw_dir) add_path(personal.paths, entry->pw_dir, "HOME");
  if (const char* folder = std::getenv("TMPDIR")) add_path(personal.paths, folder, "TMP");
  std::error_code error;
  if (const auto here = std::filesystem::current_path(error); !error) add_path(personal.paths, here.string(), "HERE");
  longest_first(personal.paths);
  for (const char* variable : {"USER", "LOGNAME"}) add_name(personal.names, std::getenv(variable), "USER");
  if (entry) add_name(personal.names, entry->pw_name, "USER");
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) {
    add_name(personal.names, host.data(), "HOST");
    const std::string whole = host.data();
    add_name(personal.names, whole.substr(0, whole.find('.')).c_str(), "HOST");
  }
  longest_first(personal.names);
  return personal;
}

std::string without(const Personal& personal, std::string_view text) {
  std::string result(text);
  for (const auto& [path, instead] : personal.paths) result = replaced(std::move(result), path, instead, false);
  for (const auto& [name, instead] : personal.names) result = replaced(std::move(result), name, instead, true);
  return result;
}

}  // namespace situ
