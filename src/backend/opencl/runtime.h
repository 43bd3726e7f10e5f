// runtime.h -- what the parts of one open device share: its context, the queue work goes to, counters, profile.
#pragma once
#include <string>
#include <vector>

#include "backend/opencl/check.h"
#include "backend/opencl/cl_api.h"
#include "backend/opencl/devices.h"
#include "backend/opencl/profile.h"
#include "device/device.h"

namespace situ::opencl {

struct Runtime {
  Runtime(const Api& api, FoundDevice one) : cl(api), found(std::move(one)), profile(api) {}

  const Api& cl;
  FoundDevice found;
  device::Target target;
  Handle<cl_context> context;
  Handle<cl_command_queue> plain_queue, profiling_queue;  // the second is made when first asked for
  cl_command_queue queue = nullptr;                       // the one in use
  device::Counters counters;
  Profile profile;
  int64_t allocated = 0;           // bytes in slabs
  std::vector<std::string> notes;  // what works differently from what was asked for

  void open();                             // context and queue
  void add_note(const std::string& text);  // each text once
  void use_profiling_queue(bool yes);
  Handle<cl_mem> make_buffer(cl_mem_flags flags, size_t bytes, const void* data);
};

}  // namespace situ::opencl
