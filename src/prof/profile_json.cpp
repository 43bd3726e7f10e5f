// profile_json.cpp -- a profile as data: what the page draws, and a trace for chrome://tracing or ui.perfetto.dev.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "prof/profile.h"

namespace situ::prof {
namespace {

using nlohmann::ordered_json;

constexpr size_t kEvents = 4000;  // of a timeline in the page: more cannot be told apart

ordered_json split_json(const step::TimeSplit& s) {
  return {{"wall", s.wall},     {"compute", s.compute}, {"movement", s.movement},
          {"launch", s.launch}, {"wait", s.wait},       {"idle", s.idle}};
}

ordered_json launches_json(const Profile& p) {
  ordered_json list = ordered_json::array();
  for (const LaunchRow& r : p.launches) {
    const step::Ledger::Launch& l = p.measured.ledger.list[static_cast<size_t>(r.index)];
    list.push_back({{"kernel", l.kernel},
                    {"layer", l.origin.layer},
                    {"backward", l.origin.backward},
                    {"operands", l.detail},
                    {"flops", l.flops},
                    {"bytes", l.bytes},
                    {"seconds", r.seconds},
                    {"roof_seconds", r.roof},
                    {"bound", name_of(r.bound)}});
  }
  return list;
}

ordered_json layers_json(const Profile& p) {
  ordered_json list = ordered_json::array();
  for (const LayerRow& r : p.layers)
    list.push_back({{"layer", r.layer},
                    {"launches", r.launches},
                    {"forward", r.forward},
                    {"backward", r.backward},
                    {"flops", r.flops},
                    {"bytes", r.bytes},
                    {"roof_seconds", r.roof}});
  return list;
}

ordered_json memory_json(const MemoryMap& m) {
  ordered_json tensors = ordered_json::array();
  for (const Tensor& t : m.tensors)
    tensors.push_back({{"layer", t.layer},
                       {"kernel", t.kernel},
                       {"backward", t.backward},
                       {"slab", t.slab},
                       {"offset", t.offset},
                       {"bytes", t.bytes},
                       {"first", t.first},
                       {"last", t.last}});
  ordered_json parts = ordered_json::array();
  for (const MemoryMap::Part& part : m.persistent) parts.push_back({{"what", part.what}, {"bytes", part.bytes}});
  return {{"arena_bytes", m.arena_bytes},
          {"peak_launch", m.peak},
          {"peak_bytes", m.peak_bytes()},
          {"at_peak", m.at_peak},
          {"persistent", parts},
          {"live", m.live},
          {"tensors", tensors}};
}

// Whole steps, as many as the page can show; times from the start of the first.
ordered_json timeline_json(const Measured& m) {
  const device::Timeline& t = m.timeline;
  const size_t per_step =
      std::max<size_t>(1, t.events.size() / static_cast<size_t>(std::max<int64_t>(1, m.profiled_steps)));
  const size_t steps =
      std::clamp<size_t>(kEvents / per_step, 1, static_cast<size_t>(std::max<int64_t>(1, m.profiled_steps)));
  const size_t count = std::min(t.events.size(), std::min<size_t>(steps, 3) * per_step);
  const double end = count > 0 ? t.events[count - 1].end : m.begin;
  static constexpr const char* kKinds[] = {"kernel", "write", "read"};
  ordered_json events = ordered_json::array(), host = ordered_json::array();
  for (size_t i = 0; i < count; ++i) {
    const device::Event& e = t.events[i];
    events.push_back({kKinds[static_cast<int>(e.kind)], e.launch, e.start - m.begin, e.end - e.start});
  }
  for (const device::HostSpan& h : t.host)
    if (h.start < end)
      host.push_back(
          {h.kind == device::HostKind::blocked ? "blocked" : "queueing", h.start - m.begin, h.end - h.start});
  return {{"seconds", end - m.begin}, {"events", events}, {"host", host}};
}

ordered_json costliest_json(const Profile& p) {
  ordered_json list = ordered_json::array();
  for (int index : p.costliest)
    list.push_back({{"launch", index}, {"try", advice(p, p.launches[static_cast<size_t>(index)])}});
  return list;
}

ordered_json losses_json(const Profile& p) {
  ordered_json list = ordered_json::array();
  for (const Curve& curve : p.losses) list.push_back({{"name", curve.name}, {"points", curve.points}});
  return list;
}

std::string event_name(const Measured& m, const device::Event& e) {
  if (e.kind != device::EventKind::kernel) return e.kind == device::EventKind::read ? "read" : "write";
  if (e.launch < 0 || static_cast<size_t>(e.launch) >= m.ledger.list.size()) return "kernel";
  return m.ledger.list[static_cast<size_t>(e.launch)].kernel;
}

ordered_json named(const char* what, int thread, const std::string& name) {
  return {{"ph", "M"}, {"pid", 1}, {"tid", thread}, {"name", what}, {"args", {{"name", name}}}};
}

}  // namespace

std::string report_json(const Profile& p) {
  const Measured& m = p.measured;
  ordered_json j = {{"model", m.model},
                    {"device", m.device},
                    {"batch", m.batch},
                    {"residency", m.residency},
                    {"program", m.ledger.program}};
  j["seconds"] = m.median_seconds;
  j["best_seconds"] = m.best_seconds;
  j["steps"] = m.steps;
  j["flops"] = m.ledger.flops;
  j["counted"] = {{"launches", m.counted.launches},
                  {"waits", m.counted.waits},
                  {"bytes_in", m.counted.bytes_in},
                  {"bytes_out", m.counted.bytes_out}};
  j["split"] = split_json(m.split);
  j["profiled_steps"] = m.profiled_steps;
  j["plain_seconds"] = m.plain_seconds;
  const auto steps = static_cast<double>(std::max<int64_t>(1, m.profiled_steps));
  double events = 0;
  for (const device::Event& e : m.timeline.events)
    if (e.kind == device::EventKind::kernel) events += e.end - e.start;
  j["kernel_seconds"] = step::kernel_seconds(m.timeline) / steps;
  j["event_seconds"] = events / steps;  // launch by launch: more, where two run side by side
  j["roofline"] = ordered_json::parse(device::to_json(p.roofline));
  j["costliest"] = costliest_json(p);
  j["advice"] = advice(p);
  j["layers"] = layers_json(p);
  j["launches"] = launches_json(p);
  j["memory"] = memory_json(p.memory);
  j["timeline"] = timeline_json(m);
  j["losses"] = losses_json(p);
  return ordered_json{{"profile", j}}.dump();
}

std::string trace_json(const Profile& p) {
  const Measured& m = p.measured;
  ordered_json events = {named("process_name", 0, fmt::format("{} batch {}", m.model, m.batch)),
                         named("thread_name", 1, m.device), named("thread_name", 2, "host")};
  const auto add = [&](int thread, const std::string& name, const char* category, double start, double end,
                       const ordered_json& args) {
    events.push_back({{"ph", "X"},
                      {"pid", 1},
                      {"tid", thread},
                      {"name", name},
                      {"cat", category},
                      {"ts", (start - m.begin) * 1e6},
                      {"dur", (end - start) * 1e6},
                      {"args", args}});
  };
  for (const device::Event& e : m.timeline.events) {
    ordered_json args = {{"queued_us", (e.queued - m.begin) * 1e6}};
    if (e.launch >= 0 && static_cast<size_t>(e.launch) < p.launches.size()) {
      const step::Ledger::Launch& l = m.ledger.list[static_cast<size_t>(e.launch)];
      args.update({{"launch", e.launch},
                   {"layer", l.origin.layer},
                   {"backward", l.origin.backward},
                   {"operands", l.detail},
                   {"flops", l.flops},
                   {"bytes", l.bytes}});
    }
    add(1, event_name(m, e), e.kind == device::EventKind::kernel ? "kernel" : "movement", e.start, e.end, args);
  }
  for (const device::HostSpan& h : m.timeline.host)
    add(2, h.kind == device::HostKind::blocked ? "blocked" : "queueing", "host", h.start, h.end,
        ordered_json::object());
  return ordered_json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump();
}

}  // namespace situ::prof
