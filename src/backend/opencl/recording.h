// recording.h -- a launch list recorded once through cl_khr_command_buffer and replayed by one call.
//
// Whether that pays is a tuning value (submit.record): it saves host time per kernel on GPUs, none on CPU runtimes.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "backend/opencl/runtime.h"

namespace situ::opencl {

struct RecordedLaunch {
  cl_kernel kernel;
  cl_uint dims;
  const size_t* global;
  const size_t* local;  // null: the driver chooses
};

class Recording {
 public:
  // Nothing, and the reason, where the driver has no command buffers or refuses these launches.
  static std::optional<Recording> make(const Runtime& run, std::span<const RecordedLaunch> launches,
                                       std::string& refusal);
  // False if it cannot run now, as while an earlier replay is pending on a driver that runs one at a time.
  bool replay(cl_command_queue queue);

 private:
  RecordingApi api_;
  Handle<CommandBuffer> buffer_;
};

}  // namespace situ::opencl
