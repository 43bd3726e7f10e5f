// verbs.h -- one file per verb; each adds its subcommand and what runs when it is chosen.
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "device/device.h"
#include "model/model.h"
#include "model/partial.h"

namespace situ::cli {

void add_train(CLI::App& app);
void add_eval(CLI::App& app);
void add_predict(CLI::App& app);
void add_devices(CLI::App& app);
void add_dump(CLI::App& app);
void add_bench(CLI::App& app);
void add_profile(CLI::App& app);
void add_tune(CLI::App& app);
void add_ledger(CLI::App& app);
void add_model(CLI::App& app);
void add_lessons(CLI::App& app);
void add_doctor(CLI::App& app);
void add_estimate(CLI::App& app);
void add_advise(CLI::App& app);

// Options that several verbs share.
inline constexpr const char* kDevices =
    "cpu, opencl, opencl:PART-OF-A-NAME, ref, or auto: the fastest by estimate, measured where that cannot tell";
struct DeviceChoice {
  std::string device = "cpu", precision = "fp32", tuning;
  int threads = 0;
  double max_submit_ms = -1;  // below 0: as tuned
  bool no_self_test = false;
  void add_to(CLI::App& verb, const std::string& which = "cpu, opencl, opencl:PART-OF-A-NAME or ref");
  std::unique_ptr<device::Device> open() const;  // with the user's program cache and what `situ tune` measured
};

struct PartialChoice {  // what is trained
  std::string train = "all", lora_targets;
  model::Lora lora;
  void add_to(CLI::App& verb);
  model::Partial of(const model::Model& model) const;
};

std::string cache_folder();  // $SITU_CACHE, $XDG_CACHE_HOME/situ or ~/.cache/situ; empty if there is none
void print_notes(const device::Device& device);  // to stderr: what works differently from what was asked for

}  // namespace situ::cli
