// pretend.cpp -- cl_qcom_recordable_queues on any driver: launches on a recordable queue are kept in a list, and
// enqueueing the recording puts the list on an ordinary queue. A driver's refusals are kept too: a queue records one
// thing at a time, a recording is replayed only after its end, and never on a recordable queue.
#include "icd/pretend.h"

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

using namespace situ::icd;
using situ::opencl::QcomRecording;

namespace situ::opencl {
struct _cl_recording_qcom {
  struct Launch {
    cl_kernel kernel;
    cl_uint dims;
    std::array<size_t, 3> global{}, local{};
    bool grouped = false;
  };
  cl_command_queue queue = nullptr;
  bool ended = false;
  std::vector<Launch> launches;
};
}  // namespace situ::opencl

namespace {

std::mutex mutex;
std::map<cl_command_queue, QcomRecording> recordable;  // and what it records now, or null

QcomRecording CL_API_CALL new_recording(cl_command_queue queue, cl_int* code) {
  const Call call(k_clNewRecordingQCOM);
  const std::lock_guard lock(mutex);
  const auto found = recordable.find(queue);
  *code = call.failure()                               ? call.failure()
          : found == recordable.end() || found->second ? CL_INVALID_COMMAND_QUEUE
                                                       : CL_SUCCESS;
  if (*code != CL_SUCCESS) return nullptr;
  ++totals().creations;
  return found->second = new situ::opencl::_cl_recording_qcom{queue, false, {}};
}

cl_int CL_API_CALL end_recording(QcomRecording recording) {
  const Call call(k_clEndRecordingQCOM);
  const std::lock_guard lock(mutex);
  recordable[recording->queue] = nullptr;
  recording->ended = !call.failure();
  return call.failure();
}

cl_int CL_API_CALL release_recording(QcomRecording recording) {
  const Call call(k_clReleaseRecordingQCOM, false);
  delete recording;
  return CL_SUCCESS;
}

cl_int CL_API_CALL enqueue_recording(cl_command_queue queue, QcomRecording recording, size_t arguments, const void*,
                                     size_t offsets, const void*, size_t globals, const void*, size_t locals,
                                     const void*, cl_uint waits, const cl_event* list, cl_event* event) {
  const Call call(k_clEnqueueRecordingQCOM);
  if (call.failure()) return call.failure();
  {
    const std::lock_guard lock(mutex);
    if (recordable.count(queue) || !recording->ended) return CL_INVALID_COMMAND_QUEUE;
  }
  if (arguments || offsets || globals || locals || event) return CL_INVALID_VALUE;  // nothing situ asks for
  for (const auto& launch : recording->launches) {
    const cl_int code =
        real().clEnqueueNDRangeKernel(queue, launch.kernel, launch.dims, nullptr, launch.global.data(),
                                      launch.grouped ? launch.local.data() : nullptr, waits, list, nullptr);
    if (code != CL_SUCCESS) return code;
    ++totals().kernels;
  }
  return CL_SUCCESS;
}

}  // namespace

namespace situ::icd {

cl_command_queue make_recordable(cl_context context, cl_device_id id, cl_command_queue_properties properties,
                                 cl_int* code) {
  if (!pretending() || properties != opencl::kQueueRecordableQcom) return nullptr;
  const cl_command_queue queue = real().clCreateCommandQueue(context, id, 0, code);
  const std::lock_guard lock(mutex);
  recordable[queue] = nullptr;
  return queue;
}

bool kept(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t* global, const size_t* local) {
  const std::lock_guard lock(mutex);
  const auto found = recordable.find(queue);
  if (found == recordable.end() || !found->second) return false;
  auto& launch = found->second->launches.emplace_back();
  launch.kernel = kernel;
  launch.dims = dims;
  launch.grouped = local != nullptr;
  for (cl_uint axis = 0; axis < dims; ++axis) {
    launch.global[axis] = global[axis];
    if (local) launch.local[axis] = local[axis];
  }
  return true;
}

void forget_queue(cl_command_queue queue) {
  const std::lock_guard lock(mutex);
  recordable.erase(queue);
}

void* qcom_function(const char* name) {
  if (!pretending()) return nullptr;
  const auto is = [&](const char* other) { return std::strcmp(name, other) == 0; };
  if (is("clNewRecordingQCOM")) return reinterpret_cast<void*>(&new_recording);
  if (is("clEndRecordingQCOM")) return reinterpret_cast<void*>(&end_recording);
  if (is("clReleaseRecordingQCOM")) return reinterpret_cast<void*>(&release_recording);
  if (is("clEnqueueRecordingQCOM")) return reinterpret_cast<void*>(&enqueue_recording);
  return nullptr;
}

}  // namespace situ::icd
