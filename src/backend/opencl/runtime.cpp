// runtime.cpp -- creation of contexts, queues and buffers.
#include "backend/opencl/runtime.h"

#include <algorithm>

namespace situ::opencl {
namespace {

Handle<cl_command_queue> make_queue(const Runtime& run, cl_command_queue_properties properties) {
  cl_int code = CL_SUCCESS;
  Handle<cl_command_queue> queue(run.cl.clCreateCommandQueue(run.context.get(), run.found.device, properties, &code),
                                 run.cl.clReleaseCommandQueue);
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

Handle<cl_mem> Runtime::make_buffer(cl_mem_flags flags, size_t bytes, const void* data) {
  cl_int code = CL_SUCCESS;
  // With CL_MEM_COPY_HOST_PTR the data is only read; the parameter is not const because other flags write to it.
  Handle<cl_mem> buffer(cl.clCreateBuffer(context.get(), flags, bytes, const_cast<void*>(data), &code),
                        cl.clReleaseMemObject);
  check("clCreateBuffer", code);
  return buffer;
}

}  // namespace situ::opencl
