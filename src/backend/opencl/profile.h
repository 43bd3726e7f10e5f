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
  void add_host(device::HostKind kind, double start) {
    if (on_) host_.push_back({kind, start, now()});
  }

 private:
  struct Command {
    cl_event event = nullptr;
    device::EventKind kind = device::EventKind::kernel;
    int launch = -1;
    LaunchTimes times;
    double called = 0;  // on the host's clock, right before the call
  };
  void clear();
  double clock_offset(double drained) const;

  const Api& cl_;
  bool on_ = false;
  std::vector<Command> commands_;
  std::vector<device::HostSpan> host_;
};

// While it lives, the host is in a call that queues work.
class Queueing {
 public:
  explicit Queueing(Profile& profile) : profile_(profile), start_(profile.on() ? now() : 0) {}
  ~Queueing() { profile_.add_host(device::HostKind::queueing, start_); }
  Queueing(const Queueing&) = delete;
  Queueing& operator=(const Queueing&) = delete;

 private:
  Profile& profile_;
  double start_;
};

}  // namespace situ::opencl
