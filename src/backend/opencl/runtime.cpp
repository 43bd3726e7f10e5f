// runtime.cpp -- creation of contexts, queues and buffers.
#include "backend/opencl/runtime.h"

#include <algorithm>

#include "backend/opencl/pocl_waits.h"

namespace situ::opencl {
namespace {

cl_queue_properties hint(int level) { return level == 1 ? kHintLow : level == 2 ? kHintMedium : kHintHigh; }

// The hints of the tuning that the driver takes, as a list of properties; empty if there are none. A hint is no
// promise, so one that cannot be given is a note.
std::vector<cl_queue_properties> hints_of(Runtime& run) {
  std::vector<cl_queue_properties> list;
  const DeviceInfo& info = run.found.info;
  const auto ask = [&](int level, bool known, cl_queue_properties property, const char* key, const char* extension) {
    if (level == 0) return;
    if (known && run.cl.clCreateCommandQueueWithProperties != nullptr)
      list.insert(list.end(), {property, hint(level)});
    else
      run.add_note(fmt::format("the driver has no {}, {} has no effect", extension, key));
  };
  ask(run.submission.priority, info.priority_hints, kQueuePriority, "submit.priority", "cl_khr_priority_hints");
  ask(run.submission.throttle, info.throttle_hints, kQueueThrottle, "submit.throttle", "cl_khr_throttle_hints");
  return list;
}

Handle<cl_command_queue> make_plain_queue(const Runtime& run, cl_command_queue_properties properties, cl_int& code) {
  return {run.cl.clCreateCommandQueue(run.context.get(), run.found.device, properties, &code),
          run.cl.clReleaseCommandQueue};
}

Handle<cl_command_queue> make_queue(Runtime& run, cl_command_queue_properties properties) {
  cl_int code = CL_SUCCESS;
  if (std::vector<cl_queue_properties> list = hints_of(run); !list.empty()) {
    if (properties != 0) list.insert(list.begin(), {CL_QUEUE_PROPERTIES, properties});
    list.push_back(0);
    Handle<cl_command_queue> queue(
        run.cl.clCreateCommandQueueWithProperties(run.context.get(), run.found.device, list.data(), &code),
        run.cl.clReleaseCommandQueue);
    if (code == CL_SUCCESS) return queue;
    run.add_note(fmt::format("the driver refuses the queue's hints ({}), it is made without", code_name(code)));
  }
  Handle<cl_command_queue> queue = make_plain_queue(run, properties, code);
  check("clCreateCommandQueue", code);
  return queue;
}

}  // namespace

void Runtime::open() {
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                              reinterpret_cast<cl_context_properties>(found.platform), 0};
  cl_int code = CL_SUCCESS;
  context = Handle<cl_context>(cl.clCreateContext(properties, 1, &found.device, nullptr, nullptr, &code),
                               cl.clReleaseContext);
  check("clCreateContext", code);
  submission = submission_of(target);
  if (!spin_in_pocl(submission.spin) && submission.spin > 0)
    add_note("this program's waits are the C library's, submit.spin has no effect");
  plain_queue = make_queue(*this, 0);
  queue = plain_queue.get();
}

void Runtime::add_note(const std::string& text) {
  if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(text);
}

void Runtime::use_profiling_queue(bool yes) {
  if (yes && !profiling_queue) profiling_queue = make_queue(*this, CL_QUEUE_PROFILING_ENABLE);
  queue = yes ? profiling_queue.get() : plain_queue.get();
}

void Runtime::flush() {
  check("clFlush", cl.clFlush(queue));
  unflushed = 0;
}

// Recordable and nothing else: drivers refuse it together with profiling.
cl_int Runtime::make_recordable_queue() {
  cl_int code = CL_SUCCESS;
  if (!recordable_queue) recordable_queue = make_plain_queue(*this, kQueueRecordableQcom, code);
  return code;
}

Handle<cl_mem> Runtime::make_buffer(cl_mem_flags flags, size_t bytes, const void* data) {
  cl_int code = CL_SUCCESS;
  // With CL_MEM_COPY_HOST_PTR the data is only read; the parameter is not const because other flags write to it.
  Handle<cl_mem> buffer(cl.clCreateBuffer(context.get(), flags, bytes, const_cast<void*>(data), &code),
                        cl.clReleaseMemObject);
  check("clCreateBuffer", code);
  return buffer;
}

}  // namespace situ::opencl
