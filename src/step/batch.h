// batch.h -- what the host writes for one run: inputs and control fields.
//
// Inputs are written where the device reads them, if it lets the host in (device::Device::maps_feeds), else into host
// memory that the run copies from. What an earlier run left there may be gone, so each input a program reads is written
// anew. Control fields keep their values.
#pragma once
#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "step/memory.h"

namespace situ::step {

class Batch {
 public:
  std::span<float> f32(std::string_view input);
  std::span<int32_t> i32(std::string_view input);
  // Of 4-byte elements, whatever their type; null if no program has this input. `elements` must be all of them.
  void* find(std::string_view input, size_t elements);
  void set(std::string_view control, float value);
  void set(std::string_view control, int32_t value);

 private:
  friend class Session;
  template <typename T>
  std::span<T> view(std::string_view input, DType dtype);
  template <typename T>
  void store(std::string_view control, DType dtype, T value);
  const Field* field(std::string_view input) const;

  const MemoryMap* memory_ = nullptr;
  int feed_ = 0;
  bool ready_ = false;              // the host may write: from next_batch() to run()
  std::byte* mapped_ = nullptr;     // the feed, behind its zeros; null: the device has it
  std::vector<std::byte> staging_;  // 4-byte elements at host offsets, where they cannot be written to the feed itself
  std::array<std::byte, kControlFields * 4> control_{};
  device::Ticket ticket_ = 0;
};

}  // namespace situ::step
