// images.h -- images over operands in slabs, made while a program is bound and never inside a step.
//
// An image covers its operand alone: a window of the slab (a sub-buffer) from the nearest address a buffer may have.
// Some drivers make no image over a sub-buffer; there it covers the whole slab, if one so long may be made. A launch
// writes nothing that it reads as an image: products and convolutions never work in place. What lies in slab 0 has an
// image for each feed.
#pragma once
#include <map>
#include <tuple>
#include <vector>

#include "backend/opencl/kernel.h"
#include "backend/opencl/memory.h"
#include "backend/opencl/runtime.h"

namespace situ::opencl {

struct OperandImage {
  cl_mem image = nullptr;
  int64_t first = 0;  // the byte of the slab where it starts
};

class OperandImages {
 public:
  OperandImages(Runtime& run, const Slabs& slabs, std::vector<Handle<cl_mem>>& owned)
      : run_(run), slabs_(slabs), owned_(owned) {}
  const OperandImage* find(const ImageArg& arg, int feed);  // null: the driver makes none
  bool has(const ImageArg& arg);                            // for every feed

 private:
  using Key = std::tuple<cl_mem, int64_t, int64_t, int64_t>;  // slab, first byte, bytes, pitch of a plane
  OperandImage window(cl_mem slab, int64_t first, int64_t bytes, const ImageArg& arg);
  OperandImage whole_slab(cl_mem slab, const ImageArg& arg);
  cl_mem make(cl_mem buffer, int64_t bytes, const ImageArg& arg);

  Runtime& run_;
  const Slabs& slabs_;
  std::vector<Handle<cl_mem>>& owned_;
  std::map<Key, OperandImage> found_;
  bool no_windows_ = false;
};

}  // namespace situ::opencl
