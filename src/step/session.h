// session.h -- programs over one set of states and one arena, resident on a device.
//
// A run hands the batch and the control block over, replays the program's launches and returns; nothing in it waits,
// allocates or decides. At most two runs are in flight, and a third batch is the host's to write meanwhile. Prepared
// panels are remade before the first run that needs them after any write to what they depend on: no stale copy can
// exist.
#pragma once
#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "step/batch.h"
#include "step/compile.h"
#include "step/ledger.h"

namespace situ::step {

enum class Residency {
  resident,  // everything stays on the device
  weights,   // only states stay; each launch's other operands are copied in, its results out, the queue finished
  naive,     // every operand of every launch is copied in and out: what the study measured
};
Residency parse_residency(std::string_view name);
std::string_view name_of(Residency residency);
// Under this residency, is the slab never copied per launch? And how many bytes a copy of an operand moves, gaps of a
// pitched one included.
bool stays(Residency residency, int slab, const MemoryMap& memory);
int64_t extent(const device::TensorArg& operand, const device::Target& target);

struct SessionOptions {
  Residency residency = Residency::resident;
  CompileOptions compile;
  bool dirty_arena = false;  // it starts as NaN instead of zeros: a result that no kernel wrote then shows
  bool self_test = true;     // kernels that this driver has not run yet are tried first (trial.h)
};

class Session {
 public:
  Session(device::Device& device, const std::vector<ir::Graph>& programs, const SessionOptions& options = {});

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int program(std::string_view name) const;  // index; fails if there is none
  bool has_program(std::string_view name) const;
  const std::vector<ir::State>& states() const { return compiled_.memory.states(); }
  void set(std::string_view state, std::span<const float> values);
  void set(std::string_view state, std::span<const double> values);  // rounded where the device holds floats
  void set_part(std::string_view state, int64_t first, std::span<const float> values);  // some elements, in order
  std::vector<float> get(std::string_view state);
  std::vector<double> get_double(std::string_view state);  // without rounding, where the device is more exact

  Batch& next_batch();  // waits only while the runs in flight hold all of them
  void run(int program, Batch& batch);
  void run(std::span<const int> programs, Batch& batch);          // one after the other on one batch
  std::vector<float> output(int program, std::string_view name);  // of the program's last run; waits
  std::vector<double> output_double(int program, std::string_view name);

  Ledger ledger(int program) const;
  const Compiled& compiled() const { return compiled_; }
  device::Device& device() { return device_; }

 private:
  static constexpr size_t kBatches = 3;  // two in flight, one being filled
  void plan_batches(int64_t slab_bytes);
  void map(Batch& batch);
  void hand_over(Batch& batch, int64_t bytes);
  void widen_batch(const std::byte* from, std::byte* to) const;
  void replay(int program, int feed);
  void replay_launch_by_launch(int program);
  void fill_constants();
  void spoil_arena(std::span<const int64_t> slab_bytes);
  void refresh_prepared(int program);
  void note_writes(int program);
  bool stays(int slab) const { return step::stays(options_.residency, slab, compiled_.memory); }
  std::vector<double> read_elements(int slab, int64_t offset, int64_t pitch, const Type& type);
  template <typename T>
  void write_elements(int slab, int64_t offset, DType dtype, std::span<const T> values);
  template <typename T>
  void set_elements(std::string_view name, std::span<const T> values);
  const ir::State& state(std::string_view name) const;  // fails if there is none

  device::Device& device_;
  SessionOptions options_;
  Compiled compiled_;
  std::unique_ptr<device::Storage> storage_;
  std::vector<std::unique_ptr<device::Executable>> executables_;
  std::vector<int64_t> upload_bytes_;  // per program, host format
  int64_t mapped_bytes_ = 0;           // of a feed
  int feeds_ = 1;
  bool mapped_ = false;        // batches are written into feeds
  bool keeps_inputs_ = false;  // until an output was read, so they are mapped only for the next batch
  std::vector<bool> reads_prepared_, writes_source_;  // per program
  int prepare_ = -1;
  bool prepared_ = false;
  std::vector<Batch> batches_;
  std::array<device::Ticket, 2> in_flight_{};
  int64_t runs_ = 0;
  size_t next_ = 0;
  std::vector<std::vector<std::byte>> shadow_;  // host copies of all slabs, when not resident
};

}  // namespace situ::step
