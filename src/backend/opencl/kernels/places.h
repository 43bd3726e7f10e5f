// places.h -- the table of a launch over a group of tensors, and the slabs it refers to (slabs.clh).
#pragma once
#include <algorithm>

#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {

class Places {
 public:
  static constexpr size_t kSlabs = 8;

  // A row of the table is a few numbers and places, in the order in which they are added.
  void add_numbers(std::initializer_list<int64_t> numbers) {
    for (int64_t n : numbers) table_.words.push_back(int_of(n));
  }
  void add_place(const TensorArg& t, int64_t element) {
    const uint64_t place = static_cast<uint64_t>(t.offset / bytes_of(t.type.dtype) + element);
    const uint64_t high = (static_cast<uint64_t>(slab_index(t)) << 24) | (place >> 32);
    table_.words.push_back(static_cast<int32_t>(static_cast<uint32_t>(place)));
    table_.words.push_back(static_cast<int32_t>(static_cast<uint32_t>(high)));
  }

  void bind_slabs(Call& call) const {
    for (size_t i = 0; i < kSlabs; ++i) call.arg(slabs_[std::min(i, slabs_.size() - 1)]);
  }
  const TableArg& table() const { return table_; }

 private:
  size_t slab_index(const TensorArg& t) {
    for (size_t i = 0; i < slabs_.size(); ++i)
      if (slabs_[i].slab == t.slab) return i;
    if (slabs_.size() == kSlabs)
      fail_environment("the tensors of one launch lie in more than {} buffers: group fewer of them", kSlabs);
    slabs_.push_back({.slab = t.slab, .offset = 0, .pitch = 1, .type = f32({})});
    return slabs_.size() - 1;
  }

  TableArg table_;
  std::vector<TensorArg> slabs_;  // the slab's first element stands for the whole
};

}  // namespace situ::opencl::kernels
