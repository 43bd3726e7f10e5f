// tickets.cpp -- markers and their callbacks. No lock is held while the driver is called: it may call back at once.
#include "backend/opencl/tickets.h"

#include <algorithm>
#include <chrono>

#include "backend/opencl/check.h"
#include "base/error.h"

namespace situ::opencl {

Tickets::Tickets(const Api& cl) : cl_(cl), state_(std::make_unique<State>()) {
  for (Slot& slot : state_->slots) slot.state = state_.get();
}

Tickets::~Tickets() {
  std::unique_lock lock(state_->mutex);
  const bool quiet = state_->changed.wait_for(lock, std::chrono::seconds(10), [&] { return state_->pending == 0; });
  for (Slot& slot : state_->slots)
    if (slot.event != nullptr) cl_.clReleaseEvent(slot.event);
  lock.unlock();
  if (!quiet) (void)state_.release();  // a driver that never called back might still do so: leave it what it writes to
}

void Tickets::on_complete(cl_event, cl_int status, void* data) {
  Slot& slot = *static_cast<Slot*>(data);
  State& state = *slot.state;
  const std::lock_guard lock(state.mutex);
  slot.pending = false;
  --state.pending;
  state.done = std::max(state.done, slot.ticket);  // in-order queue: earlier steps are done as well
  if (status < 0 && state.error == CL_SUCCESS) state.error = status;
  state.changed.notify_all();  // under the lock: the owner may leave as soon as it can take it
}

Tickets::Slot& Tickets::next_slot() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  Slot& slot = state.slots[static_cast<size_t>((state.last + 1) % kSlots)];
  state.changed.wait(lock, [&] { return !slot.pending; });
  slot.ticket = ++state.last;
  slot.pending = true;
  ++state.pending;
  return slot;
}

device::Ticket Tickets::submit(cl_command_queue queue) {
  Slot& slot = next_slot();
  if (slot.event != nullptr) cl_.clReleaseEvent(slot.event);
  slot.event = nullptr;
  const char* call = "clEnqueueMarkerWithWaitList";
  cl_int code = cl_.clEnqueueMarkerWithWaitList(queue, 0, nullptr, &slot.event);
  const device::Ticket ticket = slot.ticket;
  if (code == CL_SUCCESS) {
    call = "clSetEventCallback";
    code = cl_.clSetEventCallback(slot.event, CL_COMPLETE, &Tickets::on_complete, &slot);
  }
  if (code != CL_SUCCESS) {
    on_complete(nullptr, code, &slot);
    fail_call(call, code);
  }
  check("clFlush", cl_.clFlush(queue));
  return ticket;
}

bool Tickets::done(device::Ticket ticket) const {
  const std::lock_guard lock(state_->mutex);
  return ticket <= state_->done && state_->error == CL_SUCCESS;
}

void Tickets::lend(device::Ticket ticket) {
  cl_event event = nullptr;
  {
    const std::lock_guard lock(state_->mutex);
    const Slot& slot = state_->slots[static_cast<size_t>(ticket % kSlots)];
    if (!slot.pending || slot.ticket != ticket || slot.event == nullptr) return;
    event = slot.event;
    check("clRetainEvent", cl_.clRetainEvent(event));
  }
  const cl_int code = cl_.clWaitForEvents(1, &event);
  cl_.clReleaseEvent(event);
  // A step that failed is reported by wait().
  if (code != CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) check("clWaitForEvents", code);
}

void Tickets::wait(device::Ticket ticket) {
  std::unique_lock lock(state_->mutex);
  SITU_ASSERT(ticket <= state_->last, "ticket {} was never submitted, the last one is {}", ticket, state_->last);
  state_->changed.wait(lock, [&] { return ticket <= state_->done; });
  if (state_->error == CL_SUCCESS) return;
  const cl_int error = state_->error;
  lock.unlock();
  fail_call("a submitted step", error);
}

void Tickets::all_done() {
  const std::lock_guard lock(state_->mutex);
  state_->done = state_->last;
}

}  // namespace situ::opencl
