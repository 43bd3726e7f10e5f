// limits.h -- a weaker device than the one at hand, for testing: the environment variable SITU_LIMITS.
//
//   SITU_LIMITS=alloc=64M,align=4096,local=64,texels=64K,images=0,subgroups=0,commands=0
//   SITU_LIMITS=phone      all of these
//
// alloc: bytes of the largest buffer (K, M, G); align: bytes; local: work-items of a group; texels: of the longest
// image over a buffer; 0 takes a feature away.
#pragma once
#include <string_view>

#include "backend/opencl/devices.h"

namespace situ::opencl {

// Lowers what `info` says to these limits; fails with the part of the text it does not understand.
void impose(std::string_view limits, DeviceInfo& info);

}  // namespace situ::opencl
