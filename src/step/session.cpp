#include "step/session.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "step/trial.h"

namespace situ::step {
namespace {

// Bytes a tensor spans in its slab, gaps of a pitched one included.
int64_t extent(const device::TensorArg& t, const device::Target& target) {
  return ((t.rows() - 1) * t.pitch + t.cols()) * target.bytes(t.type.dtype);
}

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

template <typename T>
std::span<T> Batch::view(std::string_view input, DType dtype) {
  for (const Field& field : memory_->inputs())
    if (field.name == input) {
      SITU_ASSERT(field.type.dtype == dtype, "input {} is {}", input, to_string(field.type));
      return {reinterpret_cast<T*>(staging_.data() + field.host_offset), static_cast<size_t>(field.type.count())};
    }
  fail("no program of this session has an input `{}`", input);
}
std::span<float> Batch::f32(std::string_view input) { return view<float>(input, DType::f32); }
std::span<int32_t> Batch::i32(std::string_view input) { return view<int32_t>(input, DType::i32); }

void Batch::copy(std::string_view input, const void* from, size_t elements) {
  for (const Field& field : memory_->inputs())
    if (field.name == input) {
      SITU_ASSERT(static_cast<size_t>(field.type.count()) == elements, "input {} is {}, not {} elements", input,
                  to_string(field.type), elements);
      std::memcpy(staging_.data() + field.host_offset, from, elements * 4);
      return;
    }
  fail("no program of this session has an input `{}`", input);
}

// A field no program reads is not there: setting it is allowed and does nothing.
template <typename T>
void Batch::store(std::string_view control, DType dtype, T value) {
  for (const Field& field : memory_->controls())
    if (field.name == control) {
      SITU_ASSERT(field.type.dtype == dtype, "control field {} is {}", control, to_string(field.type));
      std::memcpy(staging_.data() + field.host_offset, &value, sizeof value);
    }
}
void Batch::set(std::string_view control, float value) { store(control, DType::f32, value); }
void Batch::set(std::string_view control, int32_t value) { store(control, DType::i32, value); }

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
  int64_t total = 0;
  for (int64_t bytes : slabs) total += bytes;
  if (total > device.target().memory)
    fail_environment("training needs {} MiB, but {} has {} MiB: use a smaller batch or another device", total >> 20,
                     device.target().name, device.target().memory >> 20);
  storage_ = device.allocate(slabs);
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
    int64_t bytes = 0;
    for (const ir::Node& node : p.graph.nodes) {
      if (node.op == "control") bytes = std::max(bytes, int64_t{kControlFields * 4});
      if (node.op != "input") continue;
      for (const Field& f : compiled_.memory.inputs())
        if (f.name == node.attrs.text("name")) bytes = std::max(bytes, end_of(f, f.host_offset, 4));
    }
    upload_bytes_.push_back(bytes);
    std::set<std::string> derived;
    for (const ir::State& s : p.graph.states)
      if (s.attrs.flag("derived")) derived.insert(s.name);
    reads_prepared_.push_back(intersects(states_in(p.graph, "read"), derived));
    writes_source_.push_back(intersects(states_in(p.graph, "write"), sources));
  }
  for (Batch& batch : batches_) {
    batch.memory_ = &compiled_.memory;
    batch.staging_.resize(static_cast<size_t>(compiled_.memory.host_bytes()));
    if (device.target().element_bytes == 8) batch.widened_.resize(static_cast<size_t>(slabs[0] / 8));
  }
  fill_constants();
}

void Session::fill_constants() {
  for (const Constant& c : compiled_.memory.constants())
    write_elements(1, c.offset, c.type, std::vector<double>(static_cast<size_t>(c.type.count()), c.value));
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

void Session::write_elements(int slab, int64_t offset, const Type& type, std::span<const double> values) {
  const int64_t element = device_.target().element_bytes;
  std::vector<std::byte> bytes(static_cast<size_t>(type.count() * element));
  for (size_t i = 0; i < values.size(); ++i)
    encode(values[i], type.dtype, element, bytes.data() + static_cast<int64_t>(i) * element);
  device_.write(*storage_, slab, offset, bytes.data(), static_cast<int64_t>(bytes.size()));
  device_.finish();  // `bytes` dies here, and a later host read must see it
  if (!shadow_.empty()) std::memcpy(shadow_[static_cast<size_t>(slab)].data() + offset, bytes.data(), bytes.size());
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

void Session::set(std::string_view name, std::span<const float> values) {
  set(name, std::vector<double>(values.begin(), values.end()));
}

void Session::set(std::string_view name, std::span<const double> values) {
  const ir::State* state = compiled_.memory.find_state(name);
  if (!state) fail("there is no state `{}` in this session", name);
  if (static_cast<int64_t>(values.size()) != state->type.count())
    fail("state `{}` is {}: {} values do not fit", name, to_string(state->type), values.size());
  const plan::Placement place = compiled_.memory.of_state({}, state->name);
  write_elements(place.slab, place.offset, state->type, values);
  prepared_ = false;
}

std::vector<double> Session::get_double(std::string_view name) {
  const ir::State* state = compiled_.memory.find_state(name);
  if (!state) fail("there is no state `{}` in this session", name);
  const plan::Placement place = compiled_.memory.of_state({}, state->name);
  return read_elements(place.slab, place.offset, place.pitch, state->type);
}

std::vector<float> Session::get(std::string_view name) {
  const std::vector<double> exact = get_double(name);
  return {exact.begin(), exact.end()};
}

Batch& Session::next_batch() {
  Batch& batch = batches_[next_ % kBatches];
  ++next_;
  device_.wait(batch.ticket_);  // long done, unless the same block is asked for again without runs between
  return batch;
}

void Session::upload(int index, Batch& batch) {
  const int64_t bytes = upload_bytes_[static_cast<size_t>(index)];
  if (bytes == 0) return;
  if (batch.widened_.empty()) {
    if (shadow_.empty())
      device_.write(*storage_, 0, device::kZeroRun, batch.staging_.data(), bytes);
    else
      std::memcpy(shadow_[0].data() + device::kZeroRun, batch.staging_.data(), static_cast<size_t>(bytes));
    return;
  }
  const MemoryMap& memory = compiled_.memory;
  for (const auto* fields : {&memory.controls(), &memory.inputs()})
    for (const Field& f : *fields)
      widen(batch.staging_.data() + f.host_offset, f.type, batch.widened_.data() + f.offset / 8);
  const int64_t wide = static_cast<int64_t>(batch.widened_.size()) * 8 - device::kZeroRun;
  const double* from = batch.widened_.data() + device::kZeroRun / 8;
  if (shadow_.empty())
    device_.write(*storage_, 0, device::kZeroRun, from, wide);
  else
    std::memcpy(shadow_[0].data() + device::kZeroRun, from, static_cast<size_t>(wide));
}

void Session::replay(int index) {
  if (shadow_.empty())
    executables_[static_cast<size_t>(index)]->enqueue();
  else
    replay_launch_by_launch(index);
}

bool Session::stays(int slab) const {
  return options_.residency == Residency::weights && slab >= 1 && slab < compiled_.memory.first_arena_slab();
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
  replay(prepare_);
  prepared_ = true;
}

void Session::note_writes(int index) {
  if (writes_source_[static_cast<size_t>(index)]) prepared_ = false;
}

void Session::run(int index, Batch& batch) {
  device::Ticket& oldest = in_flight_[static_cast<size_t>(runs_ % 2)];
  device_.wait(oldest);
  refresh_prepared(index);
  upload(index, batch);
  replay(index);
  note_writes(index);
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
  const int64_t element = device_.target().element_bytes;
  Ledger ledger;
  ledger.program = p.name;
  ledger.launches = static_cast<int64_t>(p.launches.size());
  for (const Program& other : compiled_.programs)
    ledger.arena_bytes = std::max(ledger.arena_bytes, other.plan.arena_bytes());
  for (int64_t bytes : compiled_.memory.resident_slabs()) ledger.persistent_bytes += bytes;
  if (options_.residency == Residency::resident)
    ledger.bytes_in = upload_bytes_[static_cast<size_t>(index)] * element / 4;
  for (const device::LaunchSpec& launch : p.launches) {
    std::string detail;
    for (const auto& t : launch.in) detail += (detail.empty() ? "" : " ") + to_string(t.type);
    ledger.list.push_back({launch.node.op, detail, launch.flops, launch.bytes});
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
