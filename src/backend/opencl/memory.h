// memory.h -- slabs: the few large zero-filled buffers all tensors lie in.
#pragma once
#include <vector>

#include "backend/opencl/runtime.h"
#include "base/pages.h"

namespace situ::opencl {

class Slabs : public device::Storage {
 public:
  // Fails with the bytes needed and there are. Drivers reserve lazily, so each slab is filled before this returns.
  Slabs(Runtime& run, const std::vector<int64_t>& slab_bytes);
  ~Slabs() override;
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  cl_mem buffer(int slab) const { return buffers_[static_cast<size_t>(slab)].get(); }
  int64_t bytes(int slab) const { return bytes_[static_cast<size_t>(slab)]; }
  void check_range(int slab, int64_t offset, int64_t bytes) const;  // a bug if it is outside

 private:
  void create(int64_t bytes);
  Runtime& run_;
  std::vector<Pages> pages_;  // of a CPU, whose buffers lie in memory of ours
  std::vector<Handle<cl_mem>> buffers_;
  std::vector<int64_t> bytes_;
};

}  // namespace situ::opencl
