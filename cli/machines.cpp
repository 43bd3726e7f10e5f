#include "cli/machines.h"

#include <algorithm>
#include <cmath>

#include "backend/opencl/devices.h"
#include "base/error.h"
#include "base/names.h"
#include "estimate/choice.h"
#include "estimate/paper_device.h"
#include "prof/report.h"
#include "step/roofline.h"
#include "step/run.h"

namespace situ::cli {
namespace {

constexpr double kTurn = 0.05;  // seconds of one device's turn in a comparison
constexpr int kTurns = 5;

// A device and a session on it, to be timed in turns with others.
class Contender {
 public:
  Contender(Processor& processor, const ir::Graph& program, step::Residency residency, int classes)
      : classes_(classes), one_thread_(works_on_one_thread(*processor.device)) {
    step::SessionOptions options;
    options.residency = residency;
    session_ = std::make_unique<step::Session>(*processor.device, std::vector<ir::Graph>{program}, options);
    step::set_initial_values(*session_, 1);
    prof::run_one_step(*session_, 0, classes_);
  }
  void turn() {
    const prof::Measured m = prof::measure(
        *session_, 0, {.seconds = kTurn, .min_steps = 1, .warmup = 0, .classes = classes_, .profiled = false});
    best = std::min(best, m.best_seconds);
    if (one_thread_) best = std::min(best, m.processor_seconds);
  }
  double best = INFINITY;

 private:
  int classes_;
  bool one_thread_;
  std::unique_ptr<step::Session> session_;
};

}  // namespace

estimate::Kind kind_of(const device::Device& device) {
  if (device.target().backend != "opencl") return estimate::Kind::cpu;
  for (const opencl::DeviceInfo& d : opencl::list_devices())
    if (device.target().name == opencl::target_of(d, {}).name)
      return d.type == opencl::DeviceType::cpu ? estimate::Kind::cpu : estimate::Kind::gpu;
  return estimate::Kind::gpu;
}

bool works_on_one_thread(const device::Device& device) {
  return kind_of(device) == estimate::Kind::cpu && device.target().compute_units == 1;
}

estimate::Machine machine_of(const device::Device& device) {
  const std::string folder = cache_folder();
  estimate::Machine machine;
  const auto measured = step::load_roofline(device.target(), folder);
  machine.roofline = measured ? *measured : estimate::rough_roofline(device.target());
  const auto fitted = measured ? estimate::load_constants(device.target(), folder) : std::nullopt;
  machine.constants = fitted ? *fitted : estimate::default_constants(kind_of(device));
  if (!measured) machine.constants.band = std::max(machine.constants.band, 2.0);
  return machine;
}

std::vector<std::string> local_devices() {
  std::vector<std::string> names{"cpu"};
  try {
    for (const opencl::DeviceInfo& d : opencl::list_devices()) names.push_back("opencl:" + d.name);
  } catch (const Error&) {  // no OpenCL here
  }
  return names;
}

const estimate::Phone* phone_named(const std::string& name) {
  if (const estimate::Phone* phone = estimate::find_phone(name)) return phone;
  if (name.empty() || name == "cpu" || name == "ref" || name.starts_with("opencl")) return nullptr;
  std::vector<std::string_view> known{"cpu", "opencl"};
  for (const estimate::Phone& p : estimate::all_phones()) known.push_back(p.name);
  fail("there is no device `{}` here or in devices/phones: did you mean `{}`? (`situ estimate --phones` lists them)",
       name, nearest_name(name, known));
}

std::vector<Processor> processors_of(const DeviceChoice& choice, const estimate::Phone* phone) {
  std::vector<Processor> list;
  if (phone) {
    auto gpu = estimate::make_paper_device(phone->gpu.target);
    if (choice.precision == "fp16") gpu->activations = DType::f16;
    list.push_back({"GPU", std::move(gpu), {phone->gpu.roofline, estimate::default_constants(estimate::Kind::gpu)}});
    if (!phone->cpu) return list;
    estimate::Constants constants = estimate::default_constants(estimate::Kind::cpu);
    constants.band = 2;  // another processor than the one its efficiencies are from
    list.push_back(
        {"CPU", estimate::make_paper_device(phone->cpu->target), {phone->cpu->roofline, std::move(constants)}});
    return list;
  }
  DeviceChoice each = choice;
  for (const std::string& name : choice.device.empty() ? local_devices() : std::vector{choice.device}) {
    each.device = name;
    each.precision = name == "cpu" && choice.device.empty() ? "fp32" : choice.precision;
    auto device = each.open();
    estimate::Machine machine = machine_of(*device);
    list.push_back({name, std::move(device), std::move(machine)});
  }
  return list;
}

void settle(DeviceChoice& choice, const Program& program, step::Residency residency, int classes) {
  if (choice.device != "auto") return;
  DeviceChoice all = choice;
  all.device.clear();
  std::vector<Processor> processors = processors_of(all, nullptr);
  if (choice.precision == "fp16") std::erase_if(processors, [](const Processor& p) { return p.name == "cpu"; });
  if (processors.empty()) fail("only OpenCL stores halves, and there is none here: use --precision fp32");
  std::vector<estimate::Option> options;
  for (const Processor& p : processors)
    options.push_back({p.name, estimate::estimate(program(*p.device), residency, *p.device, p.machine)});
  const auto measure = [&](const std::vector<size_t>& which) {
    std::vector<std::unique_ptr<Contender>> contenders;
    for (size_t i : which) {
      fmt::print(stderr, "situ: device auto: trying {}\n", processors[i].name);
      try {
        contenders.push_back(
            std::make_unique<Contender>(processors[i], program(*processors[i].device), residency, classes));
      } catch (const Error& e) {
        fmt::print(stderr, "situ: device auto: {} cannot run this: {}\n", processors[i].name, e.what());
        contenders.push_back(nullptr);
      }
    }
    std::vector<double> seconds;
    for (int turn = 0; turn < kTurns; ++turn)
      for (const auto& c : contenders)
        if (c) c->turn();
    for (const auto& c : contenders) seconds.push_back(c ? c->best : INFINITY);
    return seconds;
  };
  const estimate::Choice chosen = estimate::choose(options, measure);
  choice.device = options[chosen.index].device;
  fmt::print(stderr, "situ: device auto: {} ({})\n", choice.device, chosen.why);
}

}  // namespace situ::cli
