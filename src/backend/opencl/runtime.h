// runtime.h -- what the parts of one open device share: its context, the queue work goes to, counters, profile.
#pragma once
#include <string>
#include <vector>

#include "backend/opencl/check.h"
#include "backend/opencl/cl_api.h"
#include "backend/opencl/devices.h"
#include "backend/opencl/profile.h"
#include "backend/opencl/submission.h"
#include "device/device.h"

namespace situ::opencl {

struct Runtime {
  Runtime(const Api& api, FoundDevice one) : cl(api), found(std::move(one)), profile(api) {}

  const Api& cl;
  FoundDevice found;
  device::Target target;
  Handle<cl_context> context;
  Submission submission;
  Handle<cl_command_queue> plain_queue, profiling_queue, recordable_queue;  // all but the first made when asked for
  cl_command_queue queue = nullptr;                                         // the one in use
  double unflushed = 0;                                                     // seconds of work queued since a flush
  device::Counters counters;
  Profile profile;
  int64_t allocated = 0;           // bytes in slabs
  std::vector<std::string> notes;  // what works differently from what was asked for

  void open();                             // context and queue
  void add_note(const std::string& text);  // each text once
  void use_profiling_queue(bool yes);
  void flush();  // hands over what is queued, without waiting
  cl_int make_recordable_queue();
  Handle<cl_mem> make_buffer(cl_mem_flags flags, size_t bytes, const void* data);
};

}  // namespace situ::opencl
