// bind.h -- from placed launches to kernels with all their arguments set, ready to be queued any number of times.
#pragma once
#include <array>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/opencl/kernel.h"
#include "backend/opencl/memory.h"
#include "backend/opencl/program_cache.h"
#include "backend/opencl/runtime.h"
#include "backend/opencl/source.h"

namespace situ::opencl {

using KernelTable = std::map<std::string_view, const Kernel*>;

struct BoundLaunch {
  std::vector<Handle<cl_kernel>> kernels;  // one, or one per feed where an operand lies in slab 0
  cl_uint dims = 1;
  std::array<size_t, 3> global{1, 1, 1};
  std::array<size_t, 3> local{0, 0, 0};  // local[0] == 0: the driver chooses
  cl_kernel kernel(int feed) const { return kernels[kernels.size() > 1 ? static_cast<size_t>(feed) : 0].get(); }
  const size_t* local_or_null() const { return local[0] != 0 ? local.data() : nullptr; }
};

struct BoundLaunches {
  std::vector<BoundLaunch> launches;
  std::vector<Handle<cl_mem>> tables;  // constant data the kernels read
  std::vector<Handle<cl_mem>> images;  // over operands
};

// What binding needs besides the launches.
struct Binder {
  Runtime& run;
  ProgramCache& programs;
  const KernelTable& kernels;
  const FindSource& find_source;
};

BoundLaunches bind_launches(const Binder& binder, std::span<const device::LaunchSpec> specs, const Slabs& slabs);

}  // namespace situ::opencl
