#include "step/roofline.h"

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace situ::step {
namespace {

using device::Device;
using device::LaunchSpec;
using device::TensorArg;

constexpr int64_t kSmallest = 16 << 10, kStep = 4;  // working sets, bytes
constexpr int64_t kChainColumns = 160;              // whole chains at any vector width
constexpr int64_t kCopied = 2 << 20;                // bytes of a large copy
constexpr int64_t kFew = 64;                        // bytes of a small one
constexpr int kQueued = 64;                         // launches or copies behind one another
constexpr double kLaunch = 2e-3;                    // seconds a launch should last, so that queueing does not show
constexpr int kSlab = 2;                            // slab 0 may exist several times, 1 is free

TensorArg tensor(int64_t offset, int64_t rows, int64_t cols) {
  return {kSlab, device::kZeroRun + offset, cols, {DType::f32, Shape{rows, cols}}};
}

LaunchSpec launch(std::string_view kernel, std::vector<TensorArg> in, std::vector<TensorArg> out, int64_t rounds) {
  return {{std::string(kernel), {}, {}, {{"rounds", rounds}}}, std::move(in), std::move(out)};
}

// Three arrays that fill `bytes` together.
LaunchSpec triad(int64_t bytes, int64_t rounds) {
  const int64_t third = bytes / 3 / 512 * 512, count = third / 4;
  return launch("peak_triad", {tensor(0, 1, count), tensor(third, 1, count)}, {tensor(2 * third, 1, count)}, rounds);
}
double triad_bytes(int64_t bytes, int64_t rounds) {
  return static_cast<double>(bytes / 3 / 512 * 512) * 3 * static_cast<double>(rounds);
}

LaunchSpec chains(int64_t rows, int64_t rounds) {
  return launch("peak_flops", {}, {tensor(0, rows, kChainColumns)}, rounds);
}
double chain_flops(int64_t rows, int64_t rounds) {
  return 2.0 * static_cast<double>(rows * kChainColumns) * static_cast<double>(rounds);
}

// Something timed again and again, warm: the smallest time counts.
struct Timed {
  std::function<void()> run;
  double best = 1e300;
  void turn() {
    run();
    const double start = now();
    run();
    best = std::min(best, now() - start);
  }
};

class Measurement {
 public:
  Measurement(Device& device, const RooflineOptions& options) : device_(device), options_(options) {
    if (!device.has_kernel("peak_flops"))
      fail("{} is there to be exact, not fast: there is nothing to measure", device.target().name);
    const device::Target& target = device.target();
    largest_ = std::min(options.largest, std::min(target.max_slab, target.memory / 4) - device::kZeroRun);
    const int64_t bytes = device::kZeroRun + std::max(largest_, kCopied);
    storage_ = device.allocate({device::kZeroRun, device::kZeroRun, bytes});
    rows_ = std::max<int64_t>(1, target.compute_units) * target.tuning.get("vector.WX", 1);
    rows_ *= target.tuning.get("vector.WX", 1) > 1 ? 16 : 1;  // a GPU hides latency by many groups
    host_.resize(static_cast<size_t>(kCopied), std::byte{1});
  }

  device::Roofline run() {
    prepare();
    const double begin = now();
    constexpr int kTurns = 24, kLeast = 3;
    for (int turn = 0; turn < kTurns && (turn < kLeast || now() - begin < options_.seconds); ++turn) {
      for (Timed& t : timed_) t.turn();
      if (options_.progress) options_.progress(turn + 1, kTurns);
    }
    return result();
  }

 private:
  using Executables = std::vector<std::unique_ptr<device::Executable>>;

  device::Executable& bind(const std::vector<LaunchSpec>& launches) {
    return *bound_.emplace_back(device_.bind(launches, *storage_));
  }
  void replay(device::Executable& executable) {
    executable.enqueue();
    device_.finish();
  }
  // Of a few runs the fastest, after one that may compile.
  double quickest(const std::vector<LaunchSpec>& launches) {
    device::Executable& executable = bind(launches);
    replay(executable);
    Timed timed{[&] { replay(executable); }};
    for (int i = 0; i < 3; ++i) timed.turn();
    return timed.best;
  }
  // Rounds that make a launch last about kLaunch.
  template <typename Make>
  int64_t rounds_for(const Make& make) {
    int64_t rounds = 1;
    for (double seconds = quickest({make(1)}); seconds < kLaunch / 2 && rounds < (1 << 28);) {
      rounds *= std::clamp<int64_t>(static_cast<int64_t>(kLaunch / std::max(seconds, 1e-9)), 2, 64);
      seconds = quickest({make(rounds)});
    }
    bound_.clear();
    return rounds;
  }
  template <typename Work>
  size_t add(const Work& work) {
    timed_.push_back({work});
    return timed_.size() - 1;
  }
  size_t add_launches(const std::vector<LaunchSpec>& launches) {
    device::Executable* executable = &bind(launches);
    return add([this, executable] { replay(*executable); });
  }

  void prepare() {
    flops_rounds_ = rounds_for([&](int64_t rounds) { return chains(rows_, rounds); });
    std::vector<std::pair<int64_t, int64_t>> sizes;
    for (int64_t bytes = kSmallest; bytes <= largest_; bytes *= kStep)
      sizes.emplace_back(bytes, rounds_for([&](int64_t rounds) { return triad(bytes, rounds); }));
    flops_ = add_launches({chains(rows_, flops_rounds_)});
    for (const auto& [bytes, rounds] : sizes) triads_.push_back({bytes, rounds, add_launches({triad(bytes, rounds)})});
    const LaunchSpec tiny = triad(3 * 512, 1);
    one_ = add_launches({tiny});
    few_ = add_launches(std::vector<LaunchSpec>(kQueued, tiny));
    many_ = add_launches(std::vector<LaunchSpec>(4 * kQueued, tiny));
    const auto writes = [this](int count, int64_t bytes) {
      return [this, count, bytes] {
        for (int i = 0; i < count; ++i) device_.write(*storage_, kSlab, device::kZeroRun, host_.data(), bytes);
        device_.finish();
      };
    };
    small_writes_ = add(writes(kQueued, kFew));
    more_writes_ = add(writes(4 * kQueued, kFew));
    write_ = add(writes(1, kFew));
    large_write_ = add(writes(1, kCopied));
    const auto reads = [this](int64_t bytes) {
      return [this, bytes] { device_.read(*storage_, kSlab, device::kZeroRun, host_.data(), bytes); };
    };
    read_ = add(reads(kFew));
    large_read_ = add(reads(kCopied));
  }

  double best(size_t index) const { return timed_[index].best; }
  double slope(size_t few, size_t many) const { return std::max(1e-9, (best(many) - best(few)) / (3 * kQueued)); }

  device::Roofline result() const {
    device::Roofline r;
    r.peak_flops = chain_flops(rows_, flops_rounds_) / best(flops_);
    for (const auto& [bytes, rounds, index] : triads_)
      r.levels.push_back({bytes, triad_bytes(bytes, rounds) / best(index)});
    r.launch_seconds = slope(few_, many_);
    r.wait_seconds = std::max(0.0, best(one_) - r.launch_seconds);
    r.write_seconds = slope(small_writes_, more_writes_);
    r.read_seconds = best(read_);
    r.copy_in_bandwidth = (kCopied - kFew) / std::max(1e-9, best(large_write_) - best(write_));
    r.copy_out_bandwidth = (kCopied - kFew) / std::max(1e-9, best(large_read_) - best(read_));
    r.device = device_.target().name;
    r.driver = device_.target().driver;
    const std::time_t seconds = std::time(nullptr);
    std::tm day{};
    gmtime_r(&seconds, &day);
    r.measured = fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
    return r;
  }

  struct Triad {
    int64_t bytes, rounds;
    size_t index;
  };
  Device& device_;
  const RooflineOptions& options_;
  std::unique_ptr<device::Storage> storage_;
  Executables bound_;
  int64_t largest_ = 0, rows_ = 1, flops_rounds_ = 1;
  std::vector<std::byte> host_;
  std::vector<Timed> timed_;
  std::vector<Triad> triads_;
  size_t flops_ = 0, one_ = 0, few_ = 0, many_ = 0, small_writes_ = 0, more_writes_ = 0, write_ = 0, large_write_ = 0;
  size_t read_ = 0, large_read_ = 0;
};

std::string path_of(const device::Target& t, const std::string& folder) {
  const std::string identity = fmt::format("{} | {} | {} | {}", t.backend, t.name, t.driver, t.compute_units);
  return fmt::format("{}/roofline-{:016x}.json", folder, hash_of(identity));
}

std::string size_text(int64_t bytes) {
  return bytes < (1 << 20) ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} MiB", bytes >> 20);
}

}  // namespace

device::Roofline measure_roofline(Device& device, const RooflineOptions& options) {
  return Measurement(device, options).run();
}

std::optional<device::Roofline> load_roofline(const device::Target& target, const std::string& folder) {
  const std::string path = path_of(target, folder);
  std::error_code ignored;
  if (folder.empty() || !std::filesystem::exists(path, ignored)) return {};
  try {
    return device::roofline_from_json(read_file(path, 1 << 20), path);
  } catch (const Error&) {
    return {};
  }
}

void save_roofline(const device::Roofline& roofline, const device::Target& target, const std::string& folder) {
  if (folder.empty()) fail("there is no cache folder to keep measurements in: set SITU_CACHE");
  make_folders(folder);
  write_file_atomic(path_of(target, folder), device::to_json(roofline) + "\n");
}

std::string describe(const device::Roofline& r) {
  std::string text = fmt::format("measured {}: {:.0f} GFLOP/s; GB/s", r.measured, r.peak_flops * 1e-9);
  for (const device::Roofline::Level& level : r.levels)
    text += fmt::format("{} {:.0f} in {}", &level == &r.levels.front() ? "" : ",", level.bandwidth * 1e-9,
                        size_text(level.bytes));
  text += fmt::format(
      "\ncopies {:.1f} GB/s in, {:.1f} out; us: {:.2f} a launch, {:.1f} a wait, {:.2f} a small write, "
      "{:.1f} a small read",
      r.copy_in_bandwidth * 1e-9, r.copy_out_bandwidth * 1e-9, r.launch_seconds * 1e6, r.wait_seconds * 1e6,
      r.write_seconds * 1e6, r.read_seconds * 1e6);
  return text;
}

}  // namespace situ::step
