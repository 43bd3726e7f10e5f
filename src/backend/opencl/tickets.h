// tickets.h -- which submitted steps have completed, without an OpenCL wait call.
//
// Each submit() puts a marker on the queue whose callback, on a thread of the driver, notes that the step is done and
// wakes the host if it waits. The ring of markers is fixed, so a step allocates nothing here.
#pragma once
#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "backend/opencl/cl_api.h"
#include "device/device.h"

namespace situ::opencl {

class Tickets {
 public:
  explicit Tickets(const Api& cl);
  ~Tickets();  // the queue must be empty: waits for callbacks still on their way
  Tickets(const Tickets&) = delete;
  Tickets& operator=(const Tickets&) = delete;

  device::Ticket submit(cl_command_queue queue);
  bool done(device::Ticket ticket) const;
  void wait(device::Ticket ticket);  // until done; fails if the device reported an error
  void lend(
      device::Ticket ticket);  // the calling thread to the driver, by an OpenCL wait call, until done or nearly so
  void all_done();             // the host has seen the queue empty, callbacks may still be late

 private:
  static constexpr int kSlots = 64;  // far more than steps are ever in flight
  struct State;
  struct Slot {
    State* state = nullptr;
    device::Ticket ticket = 0;
    cl_event event = nullptr;
    bool pending = false;  // its callback has not come yet
  };
  struct State {
    mutable std::mutex mutex;
    std::condition_variable changed;
    std::array<Slot, kSlots> slots;
    device::Ticket last = 0, done = 0;
    int pending = 0;
    cl_int error = CL_SUCCESS;
  };
  static void CL_CALLBACK on_complete(cl_event event, cl_int status, void* slot);
  Slot& next_slot();

  const Api& cl_;
  std::unique_ptr<State> state_;
};

}  // namespace situ::opencl
