// database.h -- measured choices on disk: an SQLite file that several processes may share.
//
// A row is (device, node, candidate, seconds). `device` holds what a measurement depends on: back end, name, driver,
// units, situ's version, tuning and candidates; rows of another driver or version are simply not found. A file that is
// no database, or of another layout, is replaced: it can always be measured again.
#pragma once
#include <memory>
#include <string>

#include "device/device.h"

struct sqlite3;

namespace situ::tune {

class Database {
 public:
  explicit Database(const std::string& path);  // makes it if it is not there

  device::Choices load(const std::string& device) const;
  void store(const std::string& device, const std::string& node, const std::string& candidate, double seconds);

 private:
  struct Close {
    void operator()(sqlite3* db) const;
  };
  std::unique_ptr<sqlite3, Close> db_;
};

std::string database_path(const std::string& cache_folder);
// What the device's measurements are filed under.
std::string identity_of(const device::Device& device);
// The measured choices for a device; none where there is no database or it cannot be read.
device::Choices load_choices(const std::string& cache_folder, const device::Device& device);

}  // namespace situ::tune
