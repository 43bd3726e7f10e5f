#include "base/types.h"

#include "base/error.h"

namespace situ {

std::string_view name_of(DType dtype) { return dtype == DType::f32 ? "f32" : dtype == DType::i32 ? "i32" : "f16"; }
int64_t bytes_of(DType dtype) { return dtype == DType::f16 ? 2 : 4; }

Shape::Shape(const std::vector<int64_t>& dims) : rank_(static_cast<int>(dims.size())) {
  if (dims.size() > kMaxRank) fail("a tensor has at most {} axes, not {}", kMaxRank, dims.size());
  int64_t product = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 1) fail("every axis of a shape is at least 1, axis {} is {}", i, dims[i]);
    if (__builtin_mul_overflow(product, dims[i], &product) || product > (int64_t{1} << 40))
      fail("a tensor of more than 2^40 elements does not fit any device");
    dims_[i] = dims[i];
  }
}

int64_t Shape::count() const {
  int64_t product = 1;
  for (int i = 0; i < rank_; ++i) product *= (*this)[i];
  return product;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape.dims(), ",")); }
std::string to_string(const Type& type) { return fmt::format("{}{}", name_of(type.dtype), to_string(type.shape)); }

Shape broadcast(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<int64_t> dims(static_cast<size_t>(rank));
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank()), ib = i - (rank - b.rank());
    const int64_t da = ia < 0 ? 1 : a[ia], db = ib < 0 ? 1 : b[ib];
    if (da != db && da != 1 && db != 1) fail("shapes {} and {} do not broadcast together", to_string(a), to_string(b));
    dims[static_cast<size_t>(i)] = std::max(da, db);
  }
  return Shape(dims);
}

}  // namespace situ
