// device.h -- the device border, the only virtual interface in situ.
//
// A Device compiles launches and owns memory; nothing in it knows about models or training. Storage is a set of slabs,
// an Executable a bound launch list that is replayed. Work is queued in order. `enqueue`, `write`, `map` and `unmap` do
// not wait; `read`, `wait` and `finish` do, and count as host waits.
//
// Slab 0 holds what the host writes for each step. A storage may have it several times, each one a *feed*: the host
// fills one through a pointer into the device's memory while launches still read the others, and nothing is copied.
#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/candidate.h"
#include "device/launch.h"
#include "device/target.h"

namespace situ::device {

// What really crossed and happened, counted where it happens; compared with the ledger's prediction.
struct Counters {
  int64_t launches = 0, waits = 0, writes = 0, reads = 0, bytes_in = 0, bytes_out = 0;
};

// What ran and what the host did meanwhile, all in seconds on the host's clock (base/clock.h).
enum class EventKind { kernel, write, read };
struct Event {
  EventKind kind = EventKind::kernel;
  int launch = -1;            // index in the executable's launch list
  double start = 0, end = 0;  // the work running
  double queued = 0;          // handed to the driver, or as much earlier as is not known
};
enum class HostKind { queueing, blocked };  // in a call that queues work; in read, wait or finish
struct HostSpan {
  HostKind kind = HostKind::queueing;
  double start = 0, end = 0;
};
struct Timeline {
  std::vector<Event> events;   // in order of start
  std::vector<HostSpan> host;  // in order, none inside another
};

class Storage {
 public:
  virtual ~Storage() = default;
};

class Executable {
 public:
  virtual ~Executable() = default;
  // The whole list, slab 0 being this feed; allocates nothing in situ's own code.
  virtual void enqueue(int feed = 0) = 0;
  virtual void enqueue(int first, int count) = 0;  // a part of it, on feed 0, for the naive residency
  virtual int launches() const = 0;
};

using Ticket = int64_t;

class Device {
 public:
  virtual ~Device() = default;  // before main ends: it calls the driver, whose own statics go in no particular order
  virtual const Target& target() const = 0;
  virtual bool has_kernel(std::string_view kernel) const = 0;
  virtual std::vector<CandidateList> candidates() const = 0;
  bool has_candidate(std::string_view op) const {  // whatever its operands
    return std::ranges::any_of(candidates(), [&](CandidateList list) {
      return std::ranges::any_of(list, [&](const Candidate& c) { return c.op == op; });
    });
  }

  // Zero-filled; slab 0 is there `feeds` times.
  virtual std::unique_ptr<Storage> allocate(const std::vector<int64_t>& slab_bytes, int feeds = 1) = 0;
  virtual std::unique_ptr<Executable> bind(std::span<const LaunchSpec> launches, Storage& storage) = 0;

  // `data` stays untouched until the ticket of the step it belongs to has been waited for.
  virtual void write(Storage& storage, int slab, int64_t offset, const void* data, int64_t bytes) = 0;
  virtual void read(Storage& storage, int slab, int64_t offset, void* data, int64_t bytes) = 0;
  // Whether the host fills feeds in place; if not, it writes to the only one there is.
  virtual bool maps_feeds() const { return false; }
  // Where the host writes these bytes of a feed, every one of them: what was there may be gone. Not before the next
  // submit()'s ticket is done; launches queued so far may still read them until then.
  virtual std::byte* map(Storage& storage, int feed, int64_t offset, int64_t bytes) = 0;
  virtual void unmap(Storage& storage, int feed, int64_t bytes) = 0;  // gives them to launches queued from now on
  virtual Ticket submit() = 0;           // ends a step: flushes, and names everything queued so far
  virtual void wait(Ticket ticket) = 0;  // back-pressure between steps; no OpenCL wait call
  virtual void finish() = 0;

  // May this operand (or result) of a kernel lie in memory as half? Arithmetic is f32 either way.
  virtual bool takes_half(std::string_view, bool /*result*/, size_t) const { return false; }

  // What has to be compiled for a launch before it can run; equal texts are compiled once.
  virtual std::string program_of(const LaunchSpec& launch) const { return launch.node.op; }

  virtual const Counters& counters() const = 0;
  virtual void start_profile() = 0;
  virtual Timeline stop_profile() = 0;

  DType activations = DType::f32;  // f16: activations and their gradients are stored as half (plan/storage.cpp)
  Choices choices;                 // measured (tune/): candidates that go before those with the smallest estimate
  LeftOut left_out;                // found wrong or fatal by a self-test (step/trial.h): never chosen
  std::string trials_folder;       // where self-tests are remembered; empty: none are made
};

struct DeviceOptions {
  std::string name;          // part of an OpenCL device or platform name; empty: the first GPU, else the first device
  std::string cache_folder;  // compiled programs; empty: none
  int threads = 0;           // CPU: 0 = one per core
  Tuning tuning;             // overrides what devices/*.json says
  DType activations = DType::f32;  // f16: stored as half where kernels allow
  bool self_test = true;           // try each kernel a program uses once per driver; needs the cache folder
};

}  // namespace situ::device
