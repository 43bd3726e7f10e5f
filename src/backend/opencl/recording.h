// recording.h -- launches recorded once and replayed by one call, through cl_khr_command_buffer or
// cl_qcom_recordable_queues.
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
  // Nothing, and the reason, where the driver lacks the extension or refuses these launches.
  static std::optional<Recording> make(Runtime& run, Recorder recorder, std::span<const RecordedLaunch> launches,
                                       std::string& refusal);
  // False if it cannot run now, as while an earlier replay is pending on a driver that runs one at a time.
  bool replay(cl_command_queue queue);

 private:
  bool record_khr(const Runtime& run, std::span<const RecordedLaunch> launches, std::string& refusal);
  bool record_qcom(Runtime& run, std::span<const RecordedLaunch> launches, std::string& refusal);

  RecordingApi khr_;
  QcomApi qcom_;
  Handle<CommandBuffer> buffer_;     // of one
  Handle<QcomRecording> recording_;  // or the other
};

}  // namespace situ::opencl
