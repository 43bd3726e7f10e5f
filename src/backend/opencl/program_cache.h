// program_cache.h -- compiled programs, kept in memory for a device's life and on disk for the next one.
//
// A file is named by the hash of its key: source, options, device, driver, platform and situ's version. It holds
//
//     magic | key length | binary length | checksum of key and binary | key | binary        (three 64-bit numbers)
//
// and is used only if all of it agrees; a truncated, corrupted or foreign file is rebuilt and replaced. Files appear
// whole (written beside and renamed), so processes may share the folder. Without a writable folder everything works,
// only slower, and one note says so.
//
// Some drivers build a program once more when they are asked for its binary, which would more than double a cold start.
// So binaries are saved at once only while that is quick beside building; the others wait for save_waiting().
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/opencl/cl_api.h"
#include "backend/opencl/devices.h"

namespace situ::opencl {

struct ProgramSource {
  std::string file;     // for messages
  std::string text;     // whole source
  std::string options;  // " -DTM=6"
};

class ProgramCache {
 public:
  // The context must outlive the cache. An empty folder: memory only.
  ProgramCache(const Api& cl, cl_context context, const FoundDevice& device, std::string folder);

  // The built program; it belongs to the cache. May be called from several threads at once.
  cl_program get(const ProgramSource& source);

  // Saves binaries that waited, for about this long. Programs must still be there: before the context goes.
  void save_waiting(double seconds);

  // What was done, for tests and for `situ devices`.
  struct Stats {
    int compiled = 0, loaded = 0, saved = 0, rejected = 0;  // rejected: files found damaged or refused by the driver
    int waiting = 0;                                        // built, their binaries not yet asked for
  };
  Stats stats() const;
  std::vector<std::string> notes() const;                  // at most one: why nothing can be kept on disk
  std::string path_of(const ProgramSource& source) const;  // of its file; empty without a folder

 private:
  struct Entry {
    std::mutex building;  // held by the thread that makes the program; others wait for it
    Handle<cl_program> program;
  };
  std::string key_of(const ProgramSource& source) const;
  Handle<cl_program> make(const ProgramSource& source, const std::string& key);
  Handle<cl_program> load(const std::string& path, const std::string& key, const std::string& options);
  Handle<cl_program> compile(const ProgramSource& source);
  void save(const std::string& path, const std::string& key, cl_program program);
  bool saving_is_quick() const;
  void note(std::string text);
  void count(int Stats::*which);

  const Api& cl_;
  cl_context context_;
  cl_device_id device_;
  std::string identity_;  // the part of the key every program of this device shares
  std::string folder_;
  mutable std::mutex mutex_;  // guards what follows; never held while the driver builds
  std::map<std::string, std::unique_ptr<Entry>> entries_;
  Stats stats_;
  double build_seconds_ = 0, save_seconds_ = 0;  // spent so far
  struct Waiting {
    std::string path, key;
    cl_program program;  // belongs to its entry
  };
  std::vector<Waiting> waiting_;
  std::vector<std::string> notes_;
};

}  // namespace situ::opencl
