#include "tune/database.h"

#include <sqlite3.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/version.h"

namespace situ::tune {
namespace {

constexpr int kLayout = 1;          // of the table; kept in SQLite's user_version
constexpr int kPatienceMs = 10000;  // while another process writes

struct Finalize {
  void operator()(sqlite3_stmt* s) const { sqlite3_finalize(s); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

Statement prepare(sqlite3* db, const char* sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(db, sql, -1, &statement, nullptr) != SQLITE_OK)
    fail_environment("the tuning database: {}", sqlite3_errmsg(db));
  return Statement(statement);
}
void bind(const Statement& s, int index, const std::string& text) {
  sqlite3_bind_text(s.get(), index, text.c_str(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
}

// Null if the file is no database, is damaged or has another layout.
sqlite3* open_checked(const std::string& path) {
  sqlite3* db = nullptr;
  const int code = sqlite3_open(path.c_str(), &db);
  sqlite3_busy_timeout(db, kPatienceMs);
  int layout = 0;
  bool whole = false;
  const auto number = [](void* to, int, char** values, char**) {
    *static_cast<int*>(to) = values[0] ? std::atoi(values[0]) : 0;
    return 0;
  };
  const auto verdict = [](void* to, int, char** values, char**) {
    *static_cast<bool*>(to) = values[0] && std::string(values[0]) == "ok";
    return 0;
  };
  const bool usable = code == SQLITE_OK &&
                      sqlite3_exec(db, "pragma user_version", number, &layout, nullptr) == SQLITE_OK &&
                      sqlite3_exec(db, "pragma quick_check", verdict, &whole, nullptr) == SQLITE_OK && whole;
  const std::string create = fmt::format(
      "begin immediate; create table if not exists choice (device text, node text, candidate text, seconds real, "
      "primary key (device, node)); pragma user_version = {}; commit",
      kLayout);
  if (usable && layout == 0 && sqlite3_exec(db, create.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return db;
  if (usable && layout == kLayout) return db;
  sqlite3_close(db);
  return nullptr;
}

}  // namespace

void Database::Close::operator()(sqlite3* db) const { sqlite3_close(db); }

Database::Database(const std::string& path) : db_(open_checked(path)) {
  if (db_) return;
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  db_.reset(open_checked(path));
  if (!db_) fail_environment("the tuning database '{}' cannot be written: set SITU_CACHE to a folder that can", path);
}

device::Choices Database::load(const std::string& device) const {
  device::Choices choices;
  const Statement s = prepare(db_.get(), "select node, candidate from choice where device = ?1");
  bind(s, 1, device);
  while (sqlite3_step(s.get()) == SQLITE_ROW)
    choices[reinterpret_cast<const char*>(sqlite3_column_text(s.get(), 0))] =
        reinterpret_cast<const char*>(sqlite3_column_text(s.get(), 1));
  return choices;
}

void Database::store(const std::string& device, const std::string& node, const std::string& candidate, double seconds) {
  const Statement s = prepare(db_.get(), "insert or replace into choice values (?1, ?2, ?3, ?4)");
  bind(s, 1, device);
  bind(s, 2, node);
  bind(s, 3, candidate);
  sqlite3_bind_double(s.get(), 4, seconds);
  if (sqlite3_step(s.get()) != SQLITE_DONE) fail_environment("the tuning database: {}", sqlite3_errmsg(db_.get()));
}

std::string database_path(const std::string& cache_folder) { return cache_folder + "/tuning.sqlite"; }

std::string identity_of(const device::Device& device) {
  const device::Target& t = device.target();
  std::string tuning = device.activations == DType::f16 ? "f16 " : "";
  for (const auto& [key, value] : t.tuning.values()) tuning += fmt::format("{}={} ", key, value);
  for (device::CandidateList list : device.candidates())
    for (const device::Candidate& c : list) tuning += fmt::format("{}/{} ", c.op, c.name);
  return fmt::format("{} | {} | {} | {} units | situ {} {:016x}", t.backend, t.name, t.driver, t.compute_units,
                     kVersion, hash_of(tuning));
}

device::Choices load_choices(const std::string& cache_folder, const device::Device& device) {
  const std::string path = database_path(cache_folder);
  std::error_code ignored;
  if (cache_folder.empty() || !std::filesystem::exists(path, ignored)) return {};
  try {
    return Database(path).load(identity_of(device));
  } catch (const Error&) {
    return {};  // estimates will do
  }
}

}  // namespace situ::tune
