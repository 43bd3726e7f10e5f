// estimate.cpp -- `situ estimate MODEL --device adreno-650`: what a step would take on a device that is not here.
#include "estimate/estimate.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/calibrate.h"
#include "cli/machines.h"
#include "step/programs.h"

namespace situ::cli {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::string model, residency = "resident", optimizer = "sgd", program = "train";
  int64_t batch = 64;
  double seconds = 20;
  bool json = false, launches = false, calibrate = false, phones = false, study = false;
  DeviceChoice device;
  PartialChoice partial;
};

struct Line {
  std::string processor, basis;
  estimate::Estimate e;
  step::Program program;
};

Line line_of(const std::string& processor, const device::Device& device, const estimate::Machine& machine,
             const ir::Graph& program, step::Residency residency) {
  step::CompileOptions options;
  if (residency != step::Residency::resident) options.fuse = options.hoist = false;
  step::Compiled compiled = step::compile({program}, device, options);
  Line line{processor,
            machine.constants.basis,
            estimate::estimate(compiled, program.name, residency, device.target(), machine),
            {}};
  line.program = std::move(compiled.programs.front());
  return line;
}

std::vector<Line> lines_of(const Options& o, step::ProgramSpec spec, const estimate::Phone* phone) {
  const step::Residency residency = step::parse_residency(o.residency);
  std::vector<Line> lines;
  for (const Processor& p : processors_of(o.device, phone)) {
    spec.optimizer.scales_loss = p.device->activations == DType::f16;
    lines.push_back(line_of(p.name, *p.device, p.machine, step::program_by_name(spec, o.program), residency));
  }
  return lines;
}

ordered_json json_of(const Line& line) {
  const estimate::Estimate& e = line.e;
  ordered_json j{{"processor", line.processor},
                 {"basis", line.basis},
                 {"ms", e.seconds() * 1e3},
                 {"least_ms", e.least() * 1e3},
                 {"most_ms", e.most() * 1e3},
                 {"compute", e.compute},
                 {"movement", e.movement},
                 {"launch", e.launch},
                 {"wait", e.wait},
                 {"launches", e.launches},
                 {"gflop", e.flops * 1e-9},
                 {"memory_mib", static_cast<double>(e.memory) / (1 << 20)},
                 {"fits", e.fits()}};
  return j;
}

void print_table(const std::vector<Line>& lines) {
  fmt::print("{:34} {:>10}  {:>21}  {:>8} {:>8} {:>7} {:>6} {:>9} {:>11}\n", "", "ms a step", "from .. to", "compute",
             "movement", "launch", "wait", "launches", "memory MiB");
  for (const Line& line : lines) {
    const estimate::Estimate& e = line.e;
    const auto share = [&](double part) { return fmt::format("{:.1f}%", 100 * part / e.seconds()); };
    fmt::print("{:34.34} {:10.3f}  {:>21}  {:>8} {:>8} {:>7} {:>6} {:9} {:>11}\n", line.processor, e.seconds() * 1e3,
               fmt::format("{:.3f} .. {:.3f}", e.least() * 1e3, e.most() * 1e3), share(e.compute), share(e.movement),
               share(e.launch), share(e.wait), e.launches,
               fmt::format("{}{}", e.memory >> 20, e.fits() ? "" : " too much"));
  }
}

void print_launches(const Line& line) {
  fmt::print("\n{}\n{:>4}  {:22} {:12} {:>9} {:>9} {:>8}\n", line.processor, "#", "kernel", "class", "us", "GFLOP/s",
             "GB/s");
  for (size_t i = 0; i < line.program.launches.size(); ++i) {
    const device::LaunchSpec& l = line.program.launches[i];
    const double s = line.e.launch_seconds[i];
    fmt::print("{:4}  {:22} {:12} {:9.1f} {:9.1f} {:8.1f}\n", i, l.node.op,
               estimate::name_of(estimate::class_of(l.node.op)), s * 1e6, l.flops / s * 1e-9, l.bytes / s * 1e-9);
  }
}

void list_phones() {
  for (const estimate::Phone& p : estimate::all_phones()) {
    fmt::print("{:14} {}: GPU {:.0f} GFLOP/s, {:.0f} GB/s{}\n", p.name, p.what, p.gpu.roofline.peak_flops * 1e-9,
               p.gpu.target.bandwidth * 1e-9,
               p.cpu ? fmt::format("; CPU {:.0f} GFLOP/s", p.cpu->roofline.peak_flops * 1e-9) : "");
  }
  fmt::print("Published or derived figures: devices/phones/NAME.json says for each where it comes from.\n");
}

void run(const Options& o) {
  if (o.phones) return list_phones();
  if (o.study) return print_study();
  const estimate::Phone* phone = phone_named(o.device.device);
  if (o.calibrate) {
    if (phone) fail("{} is not here: calibrate a device of this machine, or run situ on the phone", phone->name);
    DeviceChoice choice = o.device;
    for (const std::string& name : o.device.device.empty() ? local_devices() : std::vector{o.device.device}) {
      choice.device = name;
      calibrate(*choice.open(), o.seconds);
    }
    if (o.model.empty()) return;
  }
  if (o.model.empty()) fail("name a model to estimate, or use --calibrate, --phones or --study");
  const model::Model model = model::find_model(o.model);
  step::ProgramSpec spec{model, o.batch, model::default_optimizer(model::parse_optimizer(o.optimizer))};
  spec.partial = o.partial.of(model);
  const std::vector<Line> lines = lines_of(o, spec, phone);
  const std::string where = phone ? phone->name + ", " + phone->what : "this machine";
  if (o.json) {
    ordered_json j{{"model", o.model}, {"batch", o.batch}, {"residency", o.residency},
                   {"device", where},  {"estimate", true}, {"processors", ordered_json::array()}};
    for (const Line& line : lines) j["processors"].push_back(json_of(line));
    return fmt::print("{}\n", j.dump());
  }
  fmt::print("estimate of {}, batch {}, {}, on {}. Nothing was run.\n", o.model, o.batch, o.residency, where);
  print_table(lines);
  for (const Line& line : lines)
    fmt::print("{}: {}\n", line.processor,
               phone ? "published figures, " + line.basis + "; not measured on a phone" : line.basis);
  if (!phone && std::ranges::any_of(lines, [](const Line& l) { return l.e.band > 0.9; }))
    fmt::print("`situ estimate --calibrate` measures this machine and narrows the band.\n");
  if (o.launches)
    for (const Line& line : lines) print_launches(line);
}

}  // namespace

void add_estimate(CLI::App& app) {
  auto o = std::make_shared<Options>();
  o->device.device.clear();
  CLI::App* verb = app.add_subcommand("estimate", "estimate a training step on this machine or on a phone");
  verb->add_option("model", o->model, model::spec_help());
  o->device.add_to(*verb,
                   "a phone such as adreno-650, cpu, opencl or opencl:PART-OF-A-NAME; default: all that is here");
  o->partial.add_to(*verb);
  verb->add_option("--batch", o->batch)->capture_default_str()->check(CLI::Range(1, 1 << 20));
  verb->add_option("--residency", o->residency, "resident, weights or naive")->capture_default_str();
  verb->add_option("--optimizer", o->optimizer, "sgd, adam, adamw, rmsprop, adagrad or lion")->capture_default_str();
  verb->add_option("--program", o->program, "train, micro, apply, evaluate or infer")->capture_default_str();
  verb->add_flag("--calibrate", o->calibrate,
                 "measure five models here first, and keep what they tell of this machine");
  verb->add_option("--seconds", o->seconds, "how long to measure for it")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0));
  verb->add_flag("--phones", o->phones, "list the phones");
  verb->add_flag("--study", o->study, "the study's table beside estimates of it, and its phones with a resident step");
  verb->add_flag("--launches", o->launches, "every launch too");
  verb->add_flag("--json", o->json, "one JSON object on a line");
  verb->callback([o] { run(*o); });
}

}  // namespace situ::cli
