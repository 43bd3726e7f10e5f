// pretend.h -- extensions that phones have and desktop drivers lack, played well enough to be tested against.
#pragma once
#include <string>

#include "icd/counts.h"

namespace situ::icd {

inline constexpr char kPretended[] = " cl_qcom_recordable_queues cl_khr_priority_hints cl_khr_throttle_hints ";

// A queue for recording; null where this is not pretended or the bit is not asked for.
cl_command_queue make_recordable(cl_context context, cl_device_id id, cl_command_queue_properties properties,
                                 cl_int* code);
// True if the queue is recording: the launch was kept and must not run.
bool kept(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t* global, const size_t* local);
void forget_queue(cl_command_queue queue);
void* qcom_function(const char* name);  // null for another name, or where this is not pretended

}  // namespace situ::icd
