// verdicts.h -- what self-tests found on one driver, on disk, and the marker that names what is being tried.
//
//   self_test-HASH.txt      a line per unit and variant: ok, wrong, refused or crashed, and the detail
//   self_test-HASH.trying   what is being tried now, and suspects; still there after a process died in the middle
//   self_test-HASH.lock     held by the process that tries, so that nobody takes its marker for that of a dead one
//
// HASH is of what a verdict depends on: device, driver, kernel sources, situ's version, tuning. A process that died
// with several names in the marker leaves suspects, which go one by one next time; one that died with a single name has
// found what crashes. Deleting the files makes situ try everything again.
#pragma once
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "device/device.h"

namespace situ::step {

enum class Verdict { ok, wrong, refused, crashed };
std::string_view name_of(Verdict verdict);

struct Trial {
  std::string unit;     // plan::unit_of
  std::string variant;  // what is compiled for it: a hash
  bool operator<(const Trial& other) const { return std::tie(unit, variant) < std::tie(other.unit, other.variant); }
};

class Verdicts {
 public:
  // Reads what is known and settles a dead process's marker. Nothing is raised: an unreadable file is an empty one.
  Verdicts(const device::Device& device, const std::string& folder);
  ~Verdicts();
  Verdicts(const Verdicts&) = delete;
  Verdicts& operator=(const Verdicts&) = delete;

  bool may_try() const { return lock_ >= 0; }  // false: another process is trying, or the folder cannot be written
  bool knows(const Trial& trial) const { return found_.contains(trial); }
  bool suspect(const Trial& trial) const { return suspects_.contains(trial); }
  device::LeftOut left_out() const;  // unit -> reason

  void begin(const std::vector<Trial>& trials);  // writes the marker
  void note(const Trial& trial, Verdict verdict, const std::string& detail = "");
  void end();  // keeps what was noted, then removes the marker

  const std::string& path() const { return path_; }

 private:
  struct Finding {
    Verdict verdict = Verdict::ok;
    std::string detail;
  };
  void read();
  void settle();
  void save() const;

  std::string path_;
  int lock_ = -1;
  std::map<Trial, Finding> found_;
  std::set<Trial> suspects_;
};

}  // namespace situ::step
