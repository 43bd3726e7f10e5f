// common.cpp -- what the verbs share: opening devices, the cache folder.
#include <cstdlib>

#include "backend/opencl/device.h"
#include "base/names.h"
#include "cli/verbs.h"
#include "step/devices.h"
#include "tune/database.h"

namespace situ::cli {

std::string cache_folder() {
  if (const char* own = std::getenv("SITU_CACHE")) return own;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) return std::string(xdg) + "/situ";
  if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/situ";
  return "";
}

void DeviceChoice::add_to(CLI::App& verb) {
  verb.add_option("--device", device, "cpu, opencl, opencl:PART-OF-A-NAME or ref")->capture_default_str();
  verb.add_option("--threads", threads, "CPU threads; 0: one per core. Results do not depend on it")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
}

std::unique_ptr<device::Device> DeviceChoice::open() const {
  device::DeviceOptions options;
  options.cache_folder = cache_folder();
  options.threads = threads;
  auto opened = step::open_device(device, options);
  opened->choices = tune::load_choices(options.cache_folder, *opened);
  return opened;
}

void PartialChoice::add_to(CLI::App& verb) {
  verb.add_option("--train", train, "what is trained: all, last, bias or patterns such as 'layer4.*,fc.*'")
      ->capture_default_str();
  verb.add_option("--lora", lora.rank, "train low-rank matrices of this rank beside linear and 1x1 conv layers")
      ->check(CLI::Range(0, 4096));
  verb.add_option("--lora-alpha", lora.alpha, "their weight, divided by the rank")->capture_default_str();
  verb.add_option("--lora-targets", lora_targets, "patterns of layer names; default: every such layer");
}

model::Partial PartialChoice::of(const model::Model& model) const {
  model::Partial partial = model::parse_partial(model, train);
  partial.lora = lora;
  partial.lora.targets = split_list(lora_targets, ',');
  return partial;
}

void print_notes(const device::Device& device) {
  for (const std::string& note : opencl::notes_of(device)) fmt::print(stderr, "situ: note: {}\n", note);
}

}  // namespace situ::cli
