#include "step/batch.h"

#include <cstring>

#include "base/error.h"

namespace situ::step {

const Field* Batch::field(std::string_view input) const {
  SITU_ASSERT(ready_, "a batch is written once, before its run: take the next one");
  for (const Field& field : memory_->inputs())
    if (field.name == input) return &field;
  return nullptr;
}

template <typename T>
std::span<T> Batch::view(std::string_view input, DType dtype) {
  const Field* found = field(input);
  if (!found) fail("no program of this session has an input `{}`", input);
  SITU_ASSERT(found->type.dtype == dtype, "input {} is {}", input, to_string(found->type));
  const auto elements = static_cast<size_t>(found->type.count());
  return {static_cast<T*>(find(input, elements)), elements};
}
std::span<float> Batch::f32(std::string_view input) { return view<float>(input, DType::f32); }
std::span<int32_t> Batch::i32(std::string_view input) { return view<int32_t>(input, DType::i32); }

void* Batch::find(std::string_view input, size_t elements) {
  const Field* found = field(input);
  if (!found) return nullptr;
  SITU_ASSERT(static_cast<size_t>(found->type.count()) == elements, "input {} is {}, not {} elements", input,
              to_string(found->type), elements);
  return (staging_.empty() ? mapped_ : staging_.data()) + found->host_offset;
}

// A field no program reads is not there: setting it is allowed and does nothing.
template <typename T>
void Batch::store(std::string_view control, DType dtype, T value) {
  for (const Field& field : memory_->controls())
    if (field.name == control) {
      SITU_ASSERT(field.type.dtype == dtype, "control field {} is {}", control, to_string(field.type));
      std::memcpy(control_.data() + field.host_offset, &value, sizeof value);
    }
}
void Batch::set(std::string_view control, float value) { store(control, DType::f32, value); }
void Batch::set(std::string_view control, int32_t value) { store(control, DType::i32, value); }

}  // namespace situ::step
