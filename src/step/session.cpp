#include "step/session.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "step/trial.h"

namespace situ::step {
namespace {

template <typename From, typename To>
void convert(const std::byte* from, int64_t count, To* to) {
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    to[i] = static_cast<To>(value);
  }
}

void widen(const std::byte* from, const Type& type, double* to) {
  type.dtype == DType::f32 ? convert<float>(from, type.count(), to) : convert<int32_t>(from, type.count(), to);
}

// One element as the device holds it.
void encode(double value, DType dtype, int64_t element_bytes, std::byte* to) {
  const auto single = static_cast<float>(value);
  const auto integer = static_cast<int32_t>(value);
  const void* from = element_bytes == 8    ? static_cast<const void*>(&value)
                     : dtype == DType::f32 ? static_cast<const void*>(&single)
                                           : static_cast<const void*>(&integer);
  std::memcpy(to, from, static_cast<size_t>(element_bytes));
}

int64_t end_of(const Field& field, int64_t begin, int64_t element_bytes) {
  return begin + field.type.count() * element_bytes;
}

// Host bytes, from the control block on, that a program reads.
int64_t batch_bytes(const ir::Graph& graph, const MemoryMap& memory) {
  int64_t bytes = 0;
  for (const ir::Node& node : graph.nodes) {
    if (node.op == "control") bytes = std::max(bytes, int64_t{kControlFields * 4});
    if (node.op != "input") continue;
    for (const Field& f : memory.inputs())
      if (f.name == node.attrs.text("name")) bytes = std::max(bytes, end_of(f, f.host_offset, 4));
  }
  return bytes;
}

// An input that is an output as well: it has to stay where it is until it is read.
bool gives_back_inputs(const Compiled& compiled) {
  for (const Program& p : compiled.programs)
    for (const ir::Node& node : p.graph.nodes)
      if (node.op == "output" && p.plan.of[static_cast<size_t>(node.inputs[0])].slab == 0) return true;
  return false;
}

std::set<std::string> states_in(const ir::Graph& graph, std::string_view op) {
  std::set<std::string> result;
  for (const ir::Node& node : graph.nodes)
    if (node.op == op) result.insert(node.attrs.text("state"));
  return result;
}

bool intersects(const std::set<std::string>& a, const std::set<std::string>& b) {
  return std::any_of(a.begin(), a.end(), [&](const std::string& s) { return b.count(s) > 0; });
}

}  // namespace

Residency parse_residency(std::string_view name) {
  for (Residency r : {Residency::resident, Residency::weights, Residency::naive})
    if (name == name_of(r)) return r;
  fail("unknown residency `{}`: use resident, weights or naive", name);
}

std::string_view name_of(Residency residency) {
  switch (residency) {
    case Residency::resident:
      return "resident";
    case Residency::weights:
      return "weights";
    case Residency::naive:
      return "naive";
  }
  return "";
}

bool stays(Residency residency, int slab, const MemoryMap& memory) {
  return residency == Residency::resident ||
         (residency == Residency::weights && slab >= 1 && slab < memory.first_arena_slab());
}

int64_t extent(const device::TensorArg& t, const device::Target& target) {
  return ((t.rows() - 1) * t.pitch + t.cols()) * target.bytes(t.type.dtype);
}

Session::Session(device::Device& device, const std::vector<ir::Graph>& programs, const SessionOptions& options)
    : device_(device), options_(options) {
  if (options.residency != Residency::resident) options_.compile.fuse = options_.compile.hoist = false;
  if (options.self_test) try_kernels(device, programs, options_.compile);
  compiled_ = compile(programs, device, options_.compile);
  std::vector<int64_t> slabs = compiled_.memory.resident_slabs();
  const size_t arena = slabs.size();
  for (const Program& p : compiled_.programs)
    for (size_t i = 0; i < p.plan.arena_slabs.size(); ++i) {
      if (arena + i >= slabs.size()) slabs.push_back(0);
      slabs[arena + i] = std::max(slabs[arena + i], p.plan.arena_slabs[i]);
    }
  plan_batches(slabs[0]);
  int64_t total = (feeds_ - 1) * slabs[0];
  for (int64_t bytes : slabs) total += bytes;
  if (total > device.target().memory)
    fail_environment("training needs {} MiB, but {} has {} MiB: use a smaller batch or another device", total >> 20,
                     device.target().name, device.target().memory >> 20);
  storage_ = device.allocate(slabs, feeds_);
  if (options_.dirty_arena) spoil_arena(slabs);
  if (options_.residency != Residency::resident)
    for (int64_t bytes : slabs) shadow_.emplace_back(static_cast<size_t>(bytes));

  std::set<std::string> sources;  // states that prepared panels are made from
  for (const Program& p : compiled_.programs)
    if (p.name == "prepare") sources = states_in(p.graph, "read");
  for (size_t i = 0; i < compiled_.programs.size(); ++i) {
    const Program& p = compiled_.programs[i];
    if (p.name == "prepare") prepare_ = static_cast<int>(i);
    executables_.push_back(device.bind(p.launches, *storage_));
    std::set<std::string> derived;
    for (const ir::State& s : p.graph.states)
      if (s.attrs.flag("derived")) derived.insert(s.name);
    reads_prepared_.push_back(intersects(states_in(p.graph, "read"), derived));
    writes_source_.push_back(intersects(states_in(p.graph, "write"), sources));
  }
  fill_constants();
}

// Blocks for batches, and where they are: in as many feeds, or on the host.
void Session::plan_batches(int64_t slab_bytes) {
  const MemoryMap& memory = compiled_.memory;
  const int64_t element = device_.target().element_bytes;
  for (const Program& p : compiled_.programs) upload_bytes_.push_back(batch_bytes(p.graph, memory));
  const bool read = *std::ranges::max_element(upload_bytes_) > 0;
  mapped_ = read && device_.maps_feeds() && options_.residency == Residency::resident;
  keeps_inputs_ = gives_back_inputs(compiled_);
  batches_.resize(mapped_ && keeps_inputs_ ? 1 : kBatches);
  feeds_ = mapped_ ? static_cast<int>(batches_.size()) : 1;
  mapped_bytes_ = memory.control_bytes();
  for (const Field& f : memory.inputs())
    mapped_bytes_ = std::max(mapped_bytes_, end_of(f, f.offset - device::kZeroRun, element));
  SITU_ASSERT(device::kZeroRun + mapped_bytes_ <= slab_bytes);
  for (size_t i = 0; i < batches_.size(); ++i) {
    batches_[i].memory_ = &memory;
    batches_[i].feed_ = mapped_ ? static_cast<int>(i) : 0;
    if (!mapped_ || element == 8) batches_[i].staging_.resize(static_cast<size_t>(memory.host_bytes()));
  }
}

void Session::fill_constants() {
  for (const Constant& c : compiled_.memory.constants())
    write_elements<double>(1, c.offset, c.type.dtype,
                           std::vector<double>(static_cast<size_t>(c.type.count()), c.value));
}

void Session::spoil_arena(std::span<const int64_t> slab_bytes) {
  for (size_t i = static_cast<size_t>(compiled_.memory.first_arena_slab()); i < slab_bytes.size(); ++i) {
    const std::vector<std::byte> ones(static_cast<size_t>(slab_bytes[i] - device::kZeroRun), std::byte{0xFF});
    device_.write(*storage_, static_cast<int>(i), device::kZeroRun, ones.data(), static_cast<int64_t>(ones.size()));
    device_.finish();
  }
}

bool Session::has_program(std::string_view name) const {
  return std::any_of(compiled_.programs.begin(), compiled_.programs.end(),
                     [&](const Program& p) { return p.name == name; });
}

int Session::program(std::string_view name) const {
  for (size_t i = 0; i < compiled_.programs.size(); ++i)
    if (compiled_.programs[i].name == name) return static_cast<int>(i);
  fail("this session has no program `{}`", name);
}

// Piece by piece: a large parameter need not exist three times over while it is set.
template <typename T>
void Session::write_elements(int slab, int64_t offset, DType dtype, std::span<const T> values) {
  constexpr size_t kPiece = size_t{1} << 18;
  const auto element = static_cast<size_t>(device_.target().element_bytes);
  std::vector<std::byte> bytes(std::min(values.size(), kPiece) * element);
  for (size_t first = 0; first < values.size(); first += kPiece) {
    const size_t count = std::min(kPiece, values.size() - first), at = static_cast<size_t>(offset) + first * element;
    for (size_t i = 0; i < count; ++i)
      encode(static_cast<double>(values[first + i]), dtype, static_cast<int64_t>(element), bytes.data() + i * element);
    device_.write(*storage_, slab, static_cast<int64_t>(at), bytes.data(), static_cast<int64_t>(count * element));
    device_.finish();  // `bytes` is filled again, and a later host read must see it
    if (!shadow_.empty()) std::memcpy(shadow_[static_cast<size_t>(slab)].data() + at, bytes.data(), count * element);
  }
}

std::vector<double> Session::read_elements(int slab, int64_t offset, int64_t pitch, const Type& type) {
  const int64_t element = device_.target().element_bytes;
  const int64_t span = ((type.shape.rows() - 1) * pitch + type.shape.cols()) * element;
  std::vector<std::byte> bytes(static_cast<size_t>(span));
  const bool on_host = !shadow_.empty() && !stays(slab);
  if (on_host)
    std::memcpy(bytes.data(), shadow_[static_cast<size_t>(slab)].data() + offset, bytes.size());
  else
    device_.read(*storage_, slab, offset, bytes.data(), span);
  std::vector<double> result(static_cast<size_t>(type.count()));
  const Type row{type.dtype, Shape{type.shape.cols()}};
  for (int64_t r = 0; r < type.shape.rows(); ++r) {
    const std::byte* from = bytes.data() + r * pitch * element;
    double* to = result.data() + r * type.shape.cols();
    element == 8 ? convert<double>(from, row.count(), to) : widen(from, row, to);
  }
  return result;
}

const ir::State& Session::state(std::string_view name) const {
  const ir::State* state = compiled_.memory.find_state(name);
  if (!state) fail("there is no state `{}` in this session", name);
  return *state;
}

template <typename T>
void Session::set_elements(std::string_view name, std::span<const T> values) {
  const ir::State& target = state(name);
  if (static_cast<int64_t>(values.size()) != target.type.count())
    fail("state `{}` is {}: {} values do not fit", name, to_string(target.type), values.size());
  const plan::Placement place = compiled_.memory.of_state({}, target.name);
  write_elements(place.slab, place.offset, target.type.dtype, values);
  prepared_ = false;
}
void Session::set_part(std::string_view name, int64_t first, std::span<const float> values) {
  const ir::State& target = state(name);
  const auto count = static_cast<int64_t>(values.size());
  if (first < 0 || first + count > target.type.count())
    fail("state `{}` is {}: elements {} to {} do not fit", name, to_string(target.type), first, first + count);
  const plan::Placement place = compiled_.memory.of_state({}, target.name);
  write_elements(place.slab, place.offset + first * device_.target().element_bytes, target.type.dtype, values);
  prepared_ = false;
}
void Session::set(std::string_view name, std::span<const float> values) { set_elements(name, values); }
void Session::set(std::string_view name, std::span<const double> values) { set_elements(name, values); }

std::vector<double> Session::get_double(std::string_view name) {
  const ir::State& source = state(name);
  const plan::Placement place = compiled_.memory.of_state({}, source.name);
  return read_elements(place.slab, place.offset, place.pitch, source.type);
}

std::vector<float> Session::get(std::string_view name) {
  const std::vector<double> exact = get_double(name);
  return {exact.begin(), exact.end()};
}

Batch& Session::next_batch() {
  Batch& batch = batches_[next_++ % batches_.size()];
  device_.wait(batch.ticket_);
  if (mapped_ && !batch.mapped_) {  // its first use, or one that had to keep its inputs
    map(batch);
    device_.wait(device_.submit());
  }
  batch.ready_ = true;
  return batch;
}

void Session::map(Batch& batch) {
  batch.mapped_ = device_.map(*storage_, batch.feed_, device::kZeroRun, mapped_bytes_);
}

// The batch becomes the device's.
void Session::hand_over(Batch& batch, int64_t bytes) {
  if (bytes == 0) return;
  std::byte* host = batch.staging_.empty() ? batch.mapped_ : batch.staging_.data();
  std::memcpy(host, batch.control_.data(), batch.control_.size());
  std::byte* to = mapped_ ? batch.mapped_ : shadow_.empty() ? nullptr : shadow_[0].data() + device::kZeroRun;
  if (device_.target().element_bytes == 8)
    widen_batch(host, to);
  else if (!shadow_.empty())
    std::memcpy(to, host, static_cast<size_t>(bytes));
  if (mapped_) {
    device_.unmap(*storage_, batch.feed_, mapped_bytes_);
    batch.mapped_ = nullptr;
  } else if (shadow_.empty()) {
    device_.write(*storage_, 0, device::kZeroRun, host, bytes);
  }
}

void Session::widen_batch(const std::byte* from, std::byte* to) const {
  for (const auto* fields : {&compiled_.memory.controls(), &compiled_.memory.inputs()})
    for (const Field& f : *fields)
      widen(from + f.host_offset, f.type, reinterpret_cast<double*>(to + f.offset - device::kZeroRun));
}

void Session::replay(int index, int feed) {
  if (shadow_.empty())
    executables_[static_cast<size_t>(index)]->enqueue(feed);
  else
    replay_launch_by_launch(index);
}

// Each launch alone: operands up, run, wait, results down. The cost the study measured.
void Session::replay_launch_by_launch(int index) {
  const Program& p = compiled_.programs[static_cast<size_t>(index)];
  for (size_t i = 0; i < p.launches.size(); ++i) {
    const device::LaunchSpec& launch = p.launches[i];
    for (const device::TensorArg& t : launch.in)
      if (!stays(t.slab))
        device_.write(*storage_, t.slab, t.offset, shadow_[static_cast<size_t>(t.slab)].data() + t.offset,
                      extent(t, device_.target()));
    executables_[static_cast<size_t>(index)]->enqueue(static_cast<int>(i), 1);
    device_.finish();
    for (const device::TensorArg& t : launch.out)
      if (!stays(t.slab))
        device_.read(*storage_, t.slab, t.offset, shadow_[static_cast<size_t>(t.slab)].data() + t.offset,
                     extent(t, device_.target()));
  }
}

void Session::refresh_prepared(int index) {
  if (prepare_ < 0 || prepared_ || !reads_prepared_[static_cast<size_t>(index)]) return;
  replay(prepare_, 0);
  prepared_ = true;
}

void Session::note_writes(int index) {
  if (writes_source_[static_cast<size_t>(index)]) prepared_ = false;
}

void Session::run(int program, Batch& batch) { run(std::span<const int>(&program, 1), batch); }

void Session::run(std::span<const int> programs, Batch& batch) {
  SITU_ASSERT(batch.ready_, "a batch runs once: take the next one, or give all programs to one run");
  batch.ready_ = false;
  device::Ticket& oldest = in_flight_[static_cast<size_t>(runs_ % 2)];
  device_.wait(oldest);
  int64_t bytes = 0;
  for (int index : programs) bytes = std::max(bytes, upload_bytes_[static_cast<size_t>(index)]);
  hand_over(batch, bytes);
  for (int index : programs) {
    refresh_prepared(index);
    replay(index, batch.feed_);
    note_writes(index);
  }
  if (mapped_ && !batch.mapped_ && !keeps_inputs_) map(batch);  // the host's again when this run has ended
  batch.ticket_ = oldest = device_.submit();
  ++runs_;
}

std::vector<double> Session::output_double(int index, std::string_view name) {
  const Program& p = compiled_.programs[static_cast<size_t>(index)];
  for (const ir::Node& node : p.graph.nodes) {
    if (node.op != "output" || node.attrs.text("name") != name) continue;
    const plan::Placement& place = p.plan.of[static_cast<size_t>(node.inputs[0])];
    return read_elements(place.slab, place.offset, place.pitch, p.graph.type(node.inputs[0]));
  }
  fail("program `{}` has no output `{}`", p.name, name);
}

std::vector<float> Session::output(int index, std::string_view name) {
  const std::vector<double> exact = output_double(index, name);
  return {exact.begin(), exact.end()};
}

Ledger Session::ledger(int index) const {
  const Program& p = compiled_.programs[static_cast<size_t>(index)];
  Ledger ledger;
  ledger.program = p.name;
  ledger.launches = static_cast<int64_t>(p.launches.size());
  for (const Program& other : compiled_.programs)
    ledger.arena_bytes = std::max(ledger.arena_bytes, other.plan.arena_bytes());
  for (int64_t bytes : compiled_.memory.resident_slabs()) ledger.persistent_bytes += bytes;
  ledger.persistent_bytes += (feeds_ - 1) * compiled_.memory.resident_slabs()[0];
  const int64_t uploaded = upload_bytes_[static_cast<size_t>(index)];
  if (options_.residency == Residency::resident) ledger.bytes_in = mapped_ && uploaded ? mapped_bytes_ : uploaded;
  for (const device::LaunchSpec& launch : p.launches) {
    std::string detail;
    for (const auto& t : launch.in) detail += (detail.empty() ? "" : " ") + to_string(t.type);
    ledger.list.push_back({launch.node.op, detail, launch.flops, launch.bytes, launch.node.origin});
    ledger.flops += launch.flops;
    ledger.bytes += launch.bytes;
    if (options_.residency == Residency::resident) continue;
    ++ledger.waits;
    for (const auto& t : launch.in)
      if (!stays(t.slab)) ledger.bytes_in += extent(t, device_.target());
    for (const auto& t : launch.out)
      if (!stays(t.slab)) {
        ledger.bytes_out += extent(t, device_.target());
        ++ledger.waits;
      }
  }
  return ledger;
}

}  // namespace situ::step
