// memory.h -- slabs: the few large zero-filled buffers all tensors lie in, and the feeds, which the host writes to.
#pragma once
#include <vector>

#include "backend/opencl/runtime.h"
#include "base/pages.h"

namespace situ::opencl {

class Slabs : public device::Storage {
 public:
  // Fails with the bytes needed and there are. Drivers reserve lazily, so each slab is filled before this returns.
  Slabs(Runtime& run, const std::vector<int64_t>& slab_bytes, int feeds = 1);
  ~Slabs() override;
  Slabs(const Slabs&) = delete;
  Slabs& operator=(const Slabs&) = delete;

  int feeds() const { return 1 + static_cast<int>(feeds_.size()); }
  cl_mem buffer(int slab, int feed = 0) const {
    return (slab == 0 && feed > 0 ? feeds_[static_cast<size_t>(feed - 1)] : buffers_[static_cast<size_t>(slab)]).get();
  }
  int64_t bytes(int slab) const { return bytes_[static_cast<size_t>(slab)]; }
  void check_range(int slab, int64_t offset, int64_t bytes) const;  // a bug if it is outside
  std::byte* map(int feed, int64_t offset, int64_t bytes);
  void unmap(int feed, int64_t bytes);

 private:
  Handle<cl_mem> create(int64_t bytes);
  int64_t total() const;
  Runtime& run_;
  // Of a CPU, whose buffers lie in memory of ours: it goes when the queue no longer writes there, also when a
  // constructor that fails leaves fills behind.
  struct HostPages {
    Runtime& run;
    std::vector<Pages> pages;
    ~HostPages() {
      if (!pages.empty()) run.cl.clFinish(run.queue);
    }
  } host_;
  std::vector<Handle<cl_mem>> buffers_;
  std::vector<Handle<cl_mem>> feeds_;  // slab 0 once more, for feeds 1 and up
  std::vector<int64_t> bytes_;
  std::vector<void*> mapped_;  // of each feed; null: it is not
};

}  // namespace situ::opencl
