// images.cpp -- image1d_buffer_t and image2d_t over a part of a slab, each once.
#include "backend/opencl/images.h"

#include <limits>

#include "base/error.h"

namespace situ::opencl {
namespace {

int64_t texel_bytes(const ImageArg& arg) { return kTexel * bytes_of(arg.tensor.type.dtype); }

}  // namespace

cl_mem OperandImages::make(cl_mem buffer, int64_t bytes, const ImageArg& arg) {
  const device::TensorArg& t = arg.tensor;
  SITU_ASSERT(t.type.dtype == DType::f32, "an image of {}", name_of(t.type.dtype));
  const cl_image_format format{CL_RGBA, CL_FLOAT};
  cl_image_desc what{};
  what.image_type = arg.plane ? CL_MEM_OBJECT_IMAGE2D : CL_MEM_OBJECT_IMAGE1D_BUFFER;
  what.image_width = static_cast<size_t>(arg.plane ? t.cols() / kTexel : bytes / texel_bytes(arg));
  if (arg.plane) {
    what.image_height = static_cast<size_t>(t.rows());
    what.image_row_pitch = static_cast<size_t>(t.pitch * bytes_of(t.type.dtype));
  }
  what.buffer = buffer;
  cl_int code = CL_SUCCESS;
  Handle<cl_mem> image(run_.cl.clCreateImage(run_.context.get(), CL_MEM_READ_ONLY, &format, &what, nullptr, &code),
                       run_.cl.clReleaseMemObject);
  if (code != CL_SUCCESS) return nullptr;
  owned_.push_back(std::move(image));
  return owned_.back().get();
}

OperandImage OperandImages::window(cl_mem slab, int64_t first, int64_t bytes, const ImageArg& arg) {
  const cl_buffer_region region{static_cast<size_t>(first), static_cast<size_t>(bytes)};
  cl_int code = CL_SUCCESS;
  Handle<cl_mem> part(run_.cl.clCreateSubBuffer(slab, CL_MEM_READ_ONLY, CL_BUFFER_CREATE_TYPE_REGION, &region, &code),
                      run_.cl.clReleaseMemObject);
  const cl_mem image = code == CL_SUCCESS ? make(part.get(), bytes, arg) : nullptr;
  if (image != nullptr) owned_.push_back(std::move(part));
  return {image, first};
}

OperandImage OperandImages::whole_slab(cl_mem slab, const ImageArg& arg) {
  const int64_t bytes = slabs_.bytes(arg.tensor.slab), elements = bytes / bytes_of(arg.tensor.type.dtype);
  if (bytes / texel_bytes(arg) > image_limits(run_.target).line) return {};
  if (elements > std::numeric_limits<cl_int>::max()) return {};  // kernels count places with 32 bits
  const auto [found, added] = found_.try_emplace({slab, 0, bytes, 0});
  if (added) found->second.image = make(slab, bytes, arg);
  return found->second;
}

const OperandImage* OperandImages::find(const ImageArg& arg, int feed) {
  const device::TensorArg& t = arg.tensor;
  const int64_t element = bytes_of(t.type.dtype), first = t.offset / run_.target.alignment * run_.target.alignment;
  const int64_t end = t.offset + ((t.rows() - 1) * t.pitch + (arg.plane ? t.pitch : t.cols())) * element;
  const int64_t bytes = round_up(end - first, texel_bytes(arg));
  const cl_mem slab = slabs_.buffer(t.slab, feed);
  const Key key{slab, first, bytes, arg.plane ? t.pitch : 0};
  if (!found_.contains(key)) {
    OperandImage image;
    if (!no_windows_ && first + bytes <= slabs_.bytes(t.slab)) image = window(slab, first, bytes, arg);
    if (image.image == nullptr && !arg.plane) {
      no_windows_ = true;
      image = whole_slab(slab, arg);
    }
    if (image.image == nullptr) run_.add_note("the driver refuses some images of operands, buffers are read instead");
    found_[key] = image;
  }
  const OperandImage& image = found_.at(key);
  return image.image != nullptr ? &image : nullptr;
}

bool OperandImages::has(const ImageArg& arg) {
  for (int feed = 0; feed < slabs_.feeds(); ++feed)
    if (find(arg, feed) == nullptr) return false;
  return true;
}

}  // namespace situ::opencl
