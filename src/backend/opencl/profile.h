// profile.h -- one event per command while profiling is on, turned into a timeline at its end.
#pragma once
#include <memory>
#include <vector>

#include "backend/opencl/cl_api.h"
#include "base/clock.h"
#include "device/device.h"

namespace situ::opencl {

using LaunchTimes = std::shared_ptr<std::vector<double>>;  // seconds, one per launch of an executable

class Profile {
 public:
  explicit Profile(const Api& cl) : cl_(cl) {}
  ~Profile() { clear(); }
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  bool on() const { return on_; }
  void start();
  device::Timeline stop();  // every command has completed

  // Where the next command's event goes; null while profiling is off, as OpenCL wants it then. What is measured
  // replaces the launch's entry in `times`.
  cl_event* event(device::EventKind kind, int launch = -1, const LaunchTimes& times = nullptr);
  void drop_last();  // the command was refused and has no event
  void add_blocked(double seconds) { blocked_ += seconds; }

 private:
  struct Command {
    cl_event event = nullptr;
    device::EventKind kind = device::EventKind::kernel;
    int launch = -1;
    LaunchTimes times;
  };
  void clear();

  const Api& cl_;
  bool on_ = false;
  double blocked_ = 0;
  std::vector<Command> commands_;
};

}  // namespace situ::opencl
