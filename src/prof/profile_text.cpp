// profile_text.cpp -- a profile as tables on a terminal.
#include <algorithm>

#include "prof/profile.h"

namespace situ::prof {
namespace {

constexpr size_t kLayers = 16;  // shown without --launches
constexpr size_t kAtPeak = 4;

double ms(double seconds) { return seconds * 1e3; }
double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }
double giga(double count, double seconds) { return seconds > 0 ? count * 1e-9 / seconds : 0; }

std::string head(const Profile& p) {
  const Measured& m = p.measured;
  return fmt::format("{} batch {} on {}: {:.3f} ms per step (median; best {:.3f}), {:.4f} GFLOP, {:.1f} GFLOP/s\n",
                     m.model, m.batch, m.device, ms(m.median_seconds), ms(m.best_seconds), m.ledger.flops * 1e-9,
                     giga(m.ledger.flops, m.median_seconds));
}

// A bar of the five causes, and what each is.
std::string causes(const Profile& p) {
  const step::TimeSplit& s = p.measured.split;
  struct Part {
    const char* name;
    char mark;
    double seconds;
  };
  const Part parts[] = {{"compute", '#', s.compute},
                        {"movement", '=', s.movement},
                        {"launch", '>', s.launch},
                        {"wait", '.', s.wait},
                        {"idle", ' ', s.idle}};
  std::string bar, text;
  for (const Part& part : parts) {
    bar += std::string(static_cast<size_t>(60 * part.seconds / s.wall + 0.5), part.mark);
    text += fmt::format("  {} {} {:.3f} ms {:.1f}%\n", part.mark == ' ' ? '_' : part.mark,
                        fmt::format("{:9}", part.name), ms(part.seconds), 100 * part.seconds / s.wall);
  }
  return fmt::format("\na profiled step took {:.3f} ms, a plain one beside it {:.3f} ms\n  [{:60.60}]\n{}", ms(s.wall),
                     ms(p.measured.plain_seconds), bar, text);
}

std::string where(const step::Ledger::Launch& launch) {
  return launch.origin.layer + (launch.origin.backward ? ", backward" : "");
}

std::string layers(const Profile& p, size_t most) {
  std::vector<const LayerRow*> rows;
  for (const LayerRow& row : p.layers) rows.push_back(&row);
  std::stable_sort(rows.begin(), rows.end(), [](auto* a, auto* b) { return a->seconds() > b->seconds(); });
  std::string text = fmt::format("\n{:24} {:>10} {:>6} {:>10} {:>10} {:>9} {:>8} {:>9} {:>8}\n", "layer", "us", "%",
                                 "forward", "backward", "GFLOP/s", "GB/s", "roofline", "launches");
  for (size_t i = 0; i < rows.size() && i < most; ++i) {
    const LayerRow& r = *rows[i];
    text += fmt::format("{:24.24} {:10.1f} {:5.1f}% {:10.1f} {:10.1f} {:9.1f} {:8.1f} {:8.0f}% {:8}\n", r.layer,
                        r.seconds() * 1e6, 100 * r.seconds() / p.measured.split.wall, r.forward * 1e6, r.backward * 1e6,
                        giga(r.flops, r.seconds()), giga(r.bytes, r.seconds()),
                        r.seconds() > 0 ? 100 * r.roof / r.seconds() : 0, r.launches);
  }
  if (rows.size() > most) text += fmt::format("and {} more: --launches shows all\n", rows.size() - most);
  return text;
}

std::string every_launch(const Profile& p) {
  std::string text = fmt::format("\n{:>4}  {:22} {:>9} {:>9} {:>8} {:>9} {:11} {:28} {}\n", "#", "kernel", "us",
                                 "GFLOP/s", "GB/s", "roofline", "bound by", "layer", "operands");
  for (const LaunchRow& r : p.launches) {
    const step::Ledger::Launch& l = p.measured.ledger.list[static_cast<size_t>(r.index)];
    text += fmt::format("{:4}  {:22.22} {:9.1f} {:9.1f} {:8.1f} {:8.0f}% {:11} {:28.28} {:.60}\n", r.index, l.kernel,
                        r.seconds * 1e6, giga(l.flops, r.seconds), giga(l.bytes, r.seconds), 100 * r.reached(),
                        name_of(r.bound), where(l), l.detail);
  }
  return text;
}

std::string costliest(const Profile& p) {
  std::string text = "\nthe costliest launches\n";
  for (int index : p.costliest) {
    const LaunchRow& r = p.launches[static_cast<size_t>(index)];
    const step::Ledger::Launch& l = p.measured.ledger.list[static_cast<size_t>(index)];
    text += fmt::format(
        "  {:3}  {} of {}: {:.1f} us, {:.1f}% of the step, {:.0f}% of its roofline; bound by {}\n       {}\n", index,
        l.kernel, where(l), r.seconds * 1e6, 100 * r.seconds / p.measured.split.wall, 100 * r.reached(),
        name_of(r.bound), advice(p, r));
  }
  for (const std::string& sentence : advice(p)) text += "  " + sentence + "\n";
  return text;
}

std::string memory(const Profile& p) {
  const MemoryMap& m = p.memory;
  std::string text = "\nmemory\n";
  if (!m.live.empty()) {
    const step::Ledger::Launch& l = p.measured.ledger.list[static_cast<size_t>(m.peak)];
    text += fmt::format("  arena {:.2f} MiB; most of it, {:.2f} MiB, lives at launch {} ({} of {}):\n",
                        mib(m.arena_bytes), mib(m.peak_bytes()), m.peak, l.kernel, where(l));
    for (size_t i = 0; i < m.at_peak.size() && i < kAtPeak; ++i) {
      const Tensor& t = m.tensors[static_cast<size_t>(m.at_peak[i])];
      text += fmt::format("    {:8.2f} MiB  {} of {}{}, launches {} to {}\n", mib(t.bytes), t.kernel, t.layer,
                          t.backward ? ", backward" : "", t.first, t.last);
    }
    if (m.at_peak.size() > kAtPeak) text += fmt::format("    and {} smaller tensors\n", m.at_peak.size() - kAtPeak);
  }
  text += "  lasting:";
  for (const MemoryMap::Part& part : m.persistent)
    if (part.bytes > 0)
      text += fmt::format(" {} {:.2f} MiB{}", part.what, mib(part.bytes), &part == &m.persistent.back() ? "" : ",");
  return text + "\n";
}

}  // namespace

std::string text_of(const Profile& p, bool all_launches) {
  std::string text = head(p) + causes(p) + layers(p, all_launches ? p.layers.size() : kLayers);
  if (all_launches) text += every_launch(p);
  return text + costliest(p) + memory(p);
}

}  // namespace situ::prof
