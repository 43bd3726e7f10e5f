// common.cpp -- what the verbs share: opening devices, the cache folder.
#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "backend/opencl/device.h"
#include "backend/opencl/submission.h"
#include "base/error.h"
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

namespace {

std::vector<std::string> tuning_keys(std::string_view backend) {
  if (backend == "opencl") return opencl::tuning_keys();
  std::vector<std::string> keys;
  const device::Tuning known = device::tuning_for(backend, "");
  for (const auto& [key, value] : known.values()) keys.push_back(key);
  return keys;
}

device::Tuning parse_tuning(std::string_view text, std::string_view backend) {
  device::Tuning tuning;
  const std::vector<std::string> keys = tuning_keys(backend);
  for (const std::string& part : split_list(text, ',')) {
    const size_t equals = std::min(part.find('='), part.size());
    const std::string key = part.substr(0, equals);
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      fail("there is no tuning key `{}` of {}: did you mean `{}`?", key, backend,
           nearest_name(key, {keys.begin(), keys.end()}));
    int64_t value = 0;
    const char *begin = part.data() + std::min(equals + 1, part.size()), *end = part.data() + part.size();
    if (const auto [rest, error] = std::from_chars(begin, end, value); error != std::errc() || rest != end)
      fail("`{}` sets no tuning: write {}=NUMBER", part, key);
    tuning.set(key, value);
  }
  return tuning;
}

}  // namespace

void DeviceChoice::add_to(CLI::App& verb, const std::string& which) {
  verb.add_option("--device", device, which)->capture_default_str();
  verb.add_option("--precision", precision,
                  "fp32, or fp16: OpenCL stores activations and their gradients as half; sums and parameters stay fp32")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "fp16"}));
  verb.add_option("--threads", threads, "CPU threads; 0: one per core. Results do not depend on it")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  verb.add_option("--tuning", tuning, "KEY=VALUE,.. in place of what devices/*.json says (docs/tuning.md)");
  verb.add_option(
          "--max-submit-ms", max_submit_ms,
          "OpenCL: about the longest work given to the device at once, for a screen that shares it; 0: no limit")
      ->check(CLI::Range(0.0, 10000.0));
  verb.add_flag("--no-self-test", no_self_test, "do not try kernels that are new to this driver before they are used");
}

std::unique_ptr<device::Device> DeviceChoice::open() const {
  if (device == "auto") fail("this command takes no --device auto: train and bench do; name a device");
  device::DeviceOptions options;
  options.cache_folder = cache_folder();
  options.threads = threads;
  options.tuning = parse_tuning(tuning, device.starts_with("opencl") ? "opencl" : "cpu");
  if (max_submit_ms >= 0) options.tuning.set("submit.max_us", static_cast<int64_t>(max_submit_ms * 1000));
  options.activations = precision == "fp16" ? DType::f16 : DType::f32;
  options.self_test = !no_self_test;
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
  for (const auto& [unit, reason] : device.left_out)
    fmt::print(stderr, "situ: note: the kernel {} is left out on this device: {}\n", unit, reason);
}

}  // namespace situ::cli
