// types.h -- what a tensor is: an element type and a static shape.
//
// Shapes are small value types (at most kMaxRank axes, no heap), channels last: images are [N, H, W, C].
// A tensor in memory is rows x cols, where cols is the last axis: views keep that form (see device/launch.h).
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace situ {

enum class DType : uint8_t { f32, i32, f16 };  // f16: how a device may store what is computed as f32

std::string_view name_of(DType dtype);
int64_t bytes_of(DType dtype);

inline constexpr int kMaxRank = 6;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::vector<int64_t>(dims)) {}
  explicit Shape(const std::vector<int64_t>& dims);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }
  int64_t& operator[](int axis) { return dims_[static_cast<size_t>(axis)]; }
  int64_t count() const;  // number of elements; 1 for a scalar
  int64_t cols() const { return rank_ ? dims_[static_cast<size_t>(rank_ - 1)] : 1; }
  int64_t rows() const { return cols() ? count() / cols() : 0; }
  std::vector<int64_t> dims() const { return {dims_.begin(), dims_.begin() + rank_}; }
  bool operator==(const Shape& other) const = default;

 private:
  std::array<int64_t, kMaxRank> dims_{};  // unused axes stay 0, so that == may compare all of them
  int rank_ = 0;
};

struct Type {
  DType dtype = DType::f32;
  Shape shape;
  int64_t count() const { return shape.count(); }
  bool operator==(const Type& other) const = default;
};

inline Type f32(std::initializer_list<int64_t> dims) { return {DType::f32, Shape(dims)}; }
inline Type f32(const Shape& shape) { return {DType::f32, shape}; }
inline Type i32(std::initializer_list<int64_t> dims) { return {DType::i32, Shape(dims)}; }
inline Type i32(const Shape& shape) { return {DType::i32, shape}; }
inline Type f16(const Shape& shape) { return {DType::f16, shape}; }

std::string to_string(const Shape& shape);  // [64,28,28,1]
std::string to_string(const Type& type);    // f32[64,28,28,1]

// The shape two operands share when axes of extent 1 stretch (aligned at the last axis); fails if there is none.
Shape broadcast(const Shape& a, const Shape& b);

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace situ
