// devices.cpp -- `situ devices`: what is here, what it can do, and whether its kernels agree with the oracle.
#include "backend/opencl/devices.h"

#include <unistd.h>

#include <sstream>

#include "backend/cpu/simd_info.h"
#include "base/error.h"
#include "cli/verbs.h"
#include "step/devices.h"
#include "step/roofline.h"
#include "step/self_test.h"
#include "step/trial.h"

namespace situ::cli {
namespace {

void print_self_test(const std::string& spec) {
  try {
    DeviceChoice choice;
    choice.device = spec;
    const auto device = choice.open();
    const auto results = step::self_test(*device, [&](size_t done, size_t total) {
      if (isatty(STDERR_FILENO)) fmt::print(stderr, "\r\x1b[K  kernels {}/{}", done, total);
    });
    if (isatty(STDERR_FILENO)) fmt::print(stderr, "\r\x1b[K");
    size_t wrong = 0;
    for (const auto& r : results) wrong += !r.ok;
    fmt::print("  kernels: {} ops checked against the oracle, {} wrong\n", results.size(), wrong);
    for (const auto& r : results)
      if (!r.ok) fmt::print("    {}: {}\n", r.op, r.detail);
  } catch (const Error& e) {
    fmt::print("  kernels: {}\n", e.what());
  }
}

// What programs found on this device before: kernels that are not used, and where that is written.
void print_left_out(const std::string& spec) {
  try {
    DeviceChoice choice;
    choice.device = spec;
    const auto device = choice.open();
    const std::string file = step::load_left_out(*device);
    for (const auto& [unit, reason] : device->left_out) fmt::print("  left out: {}: {}\n", unit, reason);
    if (!device->left_out.empty()) fmt::print("  (delete {} to try them again)\n", file);
  } catch (const Error& e) {
    fmt::print("  {}\n", e.what());
  }
}

// What was measured once, or is measured now.
void print_roofline(const std::string& spec, bool measure) {
  try {
    DeviceChoice choice;
    choice.device = spec;
    const auto device = choice.open();
    auto known = step::load_roofline(device->target(), cache_folder());
    if (measure) {
      step::RooflineOptions how;
      if (isatty(STDERR_FILENO))
        how.progress = [](int turn, int turns) { fmt::print(stderr, "\r\x1b[K  measuring {}/{}", turn, turns); };
      known = step::measure_roofline(*device, how);
      if (how.progress) fmt::print(stderr, "\r\x1b[K");
      step::save_roofline(*known, device->target(), cache_folder());
    }
    std::istringstream lines(known ? step::describe(*known) : "not measured yet: situ devices --measure");
    for (std::string line; std::getline(lines, line);) fmt::print("  {}\n", line);
  } catch (const Error& e) {
    fmt::print("  {}\n", e.what());
  }
}

struct Options {
  bool quick = false, measure = false;
};

}  // namespace

void add_devices(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("devices", "what devices there are, what they can do, whether their kernels pass");
  verb->add_flag("--quick", o->quick, "do not run the kernels");
  verb->add_flag("--measure", o->measure,
                 "measure peak, bandwidths, copies, launches and waits instead, and keep them for `situ profile`");
  verb->callback([o] {
    const bool tests = !o->quick && !o->measure;
    const auto cpu = step::open_device("cpu");
    const device::Target& t = cpu->target();
    fmt::print("cpu: {}\n  {} threads, {} MiB, about {:.0f} GFLOP/s\n", t.name, t.compute_units, t.memory >> 20,
               t.peak_flops * 1e-9);
    fmt::print("  instruction sets: {} (SITU_SIMD=NAME chooses)\n", fmt::join(cpu::simd_sets(), ", "));
    print_roofline("cpu", o->measure);
    if (tests) print_self_test("cpu");
    try {
      for (const opencl::DeviceInfo& d : opencl::list_devices()) {
        const device::Tuning tuning = opencl::target_of(d, {}).tuning;
        const auto used = [&](std::initializer_list<const char*> keys) {
          for (const char* key : keys)
            if (tuning.get(key, 0) != 0) return " (used)";
          return "";
        };
        fmt::print(
            "opencl:{}: {} ({})\n  {}, driver {}, {} compute units, {} MiB, at most {} MiB at once{}{}{}{}{}{}{}\n",
            d.name, d.platform, opencl::name_of(d.type), d.version, d.driver, d.compute_units, d.memory >> 20,
            d.max_alloc >> 20, d.command_buffer ? ", command buffers" : "",
            d.recordable_queue ? ", recordable queues" : "", d.fp16 ? ", fp16" : "", d.images ? ", images" : "",
            d.images ? used({"gemm.IMAGE", "gemm.IMAGE_A"}) : "", d.subgroups ? ", sub-groups" : "",
            d.subgroups ? used({"gemm.SUB", "rows.SUB"}) : "");
        print_left_out("opencl:" + d.name);
        print_roofline("opencl:" + d.name, o->measure);
        if (tests) print_self_test("opencl:" + d.name);
      }
    } catch (const Error& e) {
      fmt::print("opencl: {}\n", e.what());
    }
  });
}

}  // namespace situ::cli
