#include "estimate/estimate.h"

#include <algorithm>

#include "base/error.h"

namespace situ::estimate {
namespace {

constexpr int64_t kFeeds = 3;  // batches on the device: two in flight, one being filled

int64_t memory_of(const step::Compiled& compiled, step::Residency residency) {
  const std::vector<int64_t> slabs = compiled.memory.resident_slabs();
  int64_t bytes = residency == step::Residency::resident ? (kFeeds - 1) * slabs.front() : 0;
  for (int64_t slab : slabs) bytes += slab;
  int64_t arena = 0;
  for (const step::Program& p : compiled.programs) arena = std::max(arena, p.plan.arena_bytes());
  return bytes + arena;
}

int64_t batch_bytes(const step::Compiled& compiled, const device::Target& target) {
  int64_t bytes = compiled.memory.control_bytes();
  for (const step::Field& field : compiled.memory.inputs())
    bytes += field.type.count() * target.bytes(field.type.dtype);
  return bytes;
}

// The copies and waits around one launch.
void add_round_trip(Estimate& e, const device::LaunchSpec& launch, step::Residency residency,
                    const step::MemoryMap& memory, const device::Target& target, const device::Roofline& r) {
  for (const device::TensorArg& t : launch.in)
    if (!step::stays(residency, t.slab, memory))
      e.movement += r.write_seconds + static_cast<double>(step::extent(t, target)) / r.copy_in_bandwidth;
  e.wait += r.wait_seconds;
  for (const device::TensorArg& t : launch.out)
    if (!step::stays(residency, t.slab, memory))
      e.movement += r.read_seconds + static_cast<double>(step::extent(t, target)) / r.copy_out_bandwidth;
}

}  // namespace

Estimate estimate(const step::Compiled& compiled, std::string_view program, step::Residency residency,
                  const device::Target& target, const Machine& machine) {
  const auto p = std::ranges::find(compiled.programs, program, &step::Program::name);
  SITU_ASSERT(p != compiled.programs.end(), "no program {}", program);
  const device::Roofline& r = machine.roofline;
  const Constants& c = machine.constants;
  const double launch_seconds = c.launch_seconds >= 0 ? c.launch_seconds : r.launch_seconds;
  Estimate e;
  e.band = c.band;
  e.launches = static_cast<int64_t>(p->launches.size());
  e.memory = memory_of(compiled, residency);
  e.available = target.memory;
  for (const device::LaunchSpec& launch : p->launches) {
    e.launch_seconds.push_back(seconds_of(work_of(launch, target), r, c) * c.scale);
    e.compute += e.launch_seconds.back();
    e.launch += launch_seconds;
    e.flops += launch.flops;
    if (residency != step::Residency::resident) add_round_trip(e, launch, residency, compiled.memory, target, r);
  }
  e.launch += c.step_seconds;
  if (residency == step::Residency::resident)
    e.movement += r.write_seconds + static_cast<double>(batch_bytes(compiled, target)) / r.copy_in_bandwidth;
  return e;
}

Estimate estimate(const ir::Graph& program, step::Residency residency, const device::Device& device,
                  const Machine& machine) {
  step::CompileOptions options;
  if (residency != step::Residency::resident) options.fuse = options.hoist = false;
  return estimate(step::compile({program}, device, options), program.name, residency, device.target(), machine);
}

device::Roofline rough_roofline(const device::Target& target) {
  device::Roofline r;
  r.device = target.name;
  r.driver = target.driver;
  r.peak_flops = target.peak_flops;
  r.levels = {{int64_t{64} << 20, target.bandwidth}};
  if (target.backend == "cpu") r.levels.insert(r.levels.begin(), {int64_t{256} << 10, 4 * target.bandwidth});
  r.copy_in_bandwidth = r.copy_out_bandwidth = target.bandwidth / 2;
  r.launch_seconds = target.launch_seconds;
  r.write_seconds = target.launch_seconds;
  r.read_seconds = r.wait_seconds = 5 * target.launch_seconds;
  return r;
}

}  // namespace situ::estimate
