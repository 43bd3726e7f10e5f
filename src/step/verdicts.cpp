#include "step/verdicts.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/version.h"

namespace situ::step {
namespace {

constexpr std::string_view kHeader = "situ self-test 1";
constexpr std::string_view kTrying = "trying", kWaiting = "waiting";
constexpr Verdict kAll[] = {Verdict::ok, Verdict::wrong, Verdict::refused, Verdict::crashed};

std::string identity_of(const device::Target& t) {
  std::string text = fmt::format("{} | {} | {} | {} | situ {} |", t.backend, t.name, t.driver, t.kernels, kVersion);
  for (const auto& [key, value] : t.tuning.values()) text += fmt::format(" {}={}", key, value);
  return text;
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\t') c = ' ';
  return text.substr(0, 300);
}

std::vector<std::vector<std::string>> rows_of(const std::string& path) {
  std::vector<std::vector<std::string>> rows;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return rows;
  try {
    std::istringstream file(read_file(path, uint64_t{16} << 20));
    for (std::string line; std::getline(file, line);) {
      std::vector<std::string>& row = rows.emplace_back();
      std::istringstream cells(line);
      for (std::string cell; std::getline(cells, cell, '\t');) row.push_back(cell);
    }
  } catch (const Error&) {
    rows.clear();
  }
  return rows;
}

std::optional<Verdict> parse_verdict(std::string_view name) {
  for (Verdict v : kAll)
    if (name == name_of(v)) return v;
  return {};
}

// Held until the process ends, however it ends; the file itself stays.
int lock_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (file < 0) return -1;
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return file;
  ::close(file);
  return -1;
}

std::string reason_for(Verdict verdict, const std::string& detail) {
  if (verdict == Verdict::crashed) return "the process died while it was tried";
  return fmt::format("{}: {}", verdict == Verdict::wrong ? "wrong result" : "refused by the driver", detail);
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::wrong:
      return "wrong";
    case Verdict::refused:
      return "refused";
    case Verdict::crashed:
      break;
  }
  return "crashed";
}

Verdicts::Verdicts(const device::Device& device, const std::string& folder)
    : path_(fmt::format("{}/self_test-{:016x}", folder, hash_of(identity_of(device.target())))) {
  try {
    make_folders(folder);
  } catch (const Error&) {  // what cannot be remembered is not tried
  }
  lock_ = lock_file(path_ + ".lock");
  read();
  if (may_try()) settle();
}

Verdicts::~Verdicts() {
  if (lock_ >= 0) ::close(lock_);
}

void Verdicts::read() {
  for (const auto& row : rows_of(path_ + ".txt")) {
    if (row.size() < 3) continue;
    if (const auto verdict = parse_verdict(row[0]))
      found_[{row[1], row[2]}] = {*verdict, row.size() > 3 ? row[3] : std::string()};
  }
}

// A marker whose lock nobody holds was left by a process that died.
void Verdicts::settle() {
  std::vector<Trial> dead;
  for (const auto& row : rows_of(path_ + ".trying")) {
    if (row.size() != 3) continue;
    suspects_.insert({row[1], row[2]});
    if (row[0] == kTrying) dead.push_back({row[1], row[2]});
  }
  if (dead.size() != 1) return;
  note(dead[0], Verdict::crashed);
  try {
    end();
  } catch (const Error&) {  // then it is found again next time
  }
}

device::LeftOut Verdicts::left_out() const {
  device::LeftOut result;
  for (const auto& [trial, finding] : found_)
    if (finding.verdict != Verdict::ok) result.emplace(trial.unit, reason_for(finding.verdict, finding.detail));
  return result;
}

void Verdicts::begin(const std::vector<Trial>& trials) {
  std::string text;
  std::set<Trial> waiting = suspects_;
  for (const Trial& trial : trials) {
    text += fmt::format("{}\t{}\t{}\n", kTrying, trial.unit, trial.variant);
    waiting.erase(trial);
  }
  // Suspects whose turn has not come stay suspects if the process dies now.
  for (const Trial& trial : waiting) text += fmt::format("{}\t{}\t{}\n", kWaiting, trial.unit, trial.variant);
  write_file_atomic(path_ + ".trying", text);
}

void Verdicts::note(const Trial& trial, Verdict verdict, const std::string& detail) {
  found_[trial] = {verdict, one_line(detail)};
  suspects_.erase(trial);
}

void Verdicts::end() {
  save();
  if (!suspects_.empty()) return begin({});
  std::error_code ignored;
  std::filesystem::remove(path_ + ".trying", ignored);
}

void Verdicts::save() const {
  std::string text = std::string(kHeader) + "\n";
  for (const auto& [trial, finding] : found_)
    text += fmt::format("{}\t{}\t{}\t{}\n", name_of(finding.verdict), trial.unit, trial.variant, finding.detail);
  write_file_atomic(path_ + ".txt", text);
}

}  // namespace situ::step
