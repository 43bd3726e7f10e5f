// advise.cpp -- `situ advise MODEL`: where and how to train it here or on a phone, each line with its numbers.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/machines.h"
#include "estimate/advice.h"
#include "model/init.h"
#include "step/programs.h"

namespace situ::cli {
namespace {

struct Options {
  std::string model, optimizer = "sgd";
  int64_t batch = 64, memory_mib = 0;
  bool json = false;
  DeviceChoice device;
};

estimate::Estimate estimate_of(const Processor& p, const model::Model& model, const Options& o,
                               const estimate::Variant& v) {
  step::ProgramSpec spec{model, v.batch, model::default_optimizer(model::parse_optimizer(o.optimizer))};
  spec.partial = model::parse_partial(model, v.train);
  spec.partial.lora.rank = v.lora;
  const DType before = p.device->activations;
  p.device->activations = v.half ? DType::f16 : before;
  spec.optimizer.scales_loss = p.device->activations == DType::f16;
  const ir::Graph program = step::train_program(spec);
  estimate::Estimate e = estimate::estimate(program, step::Residency::resident, *p.device, p.machine);
  p.device->activations = before;
  return e;
}

int64_t parameter_bytes(const model::Model& model) {
  int64_t bytes = 0;
  for (const ir::State& state : step::train_program({model, 1, {}}).states)
    if (model::is_trained(state)) bytes += state.type.count() * bytes_of(state.type.dtype);
  return bytes;
}

void run(const Options& o) {
  const estimate::Phone* phone = phone_named(o.device.device);
  const model::Model model = model::find_model(o.model);
  const std::vector<Processor> processors = processors_of(o.device, phone);
  std::vector<estimate::Place> places;
  for (const Processor& p : processors) {
    const bool gpu = phone ? p.name == "GPU" : kind_of(*p.device) == estimate::Kind::gpu;
    places.push_back({p.name, p.device->target().backend == "opencl", gpu ? p.name : "CPU",
                      p.machine.roofline.copy_out_bandwidth, p.machine.roofline.wait_seconds,
                      [&](const estimate::Variant& v) { return estimate_of(p, model, o, v); }});
  }
  estimate::Question question{o.batch, parameter_bytes(model), {}, {}};
  if (o.memory_mib > 0) question.budgets = {o.memory_mib << 20};
  for (int64_t batch = 1; batch <= std::max<int64_t>(64, 2 * o.batch); batch *= 2) question.batches.push_back(batch);
  const std::vector<estimate::Advice> advice = estimate::advise(places, question);
  const std::string where = phone ? phone->name + ", " + phone->what : "this machine";
  if (o.json) {
    nlohmann::ordered_json j{{"model", o.model}, {"batch", o.batch}, {"device", where}, {"estimate", true}};
    for (const estimate::Advice& a : advice)
      j["advice"].push_back({{"topic", a.topic}, {"say", a.say}, {"because", a.because}});
    return fmt::print("{}\n", j.dump());
  }
  fmt::print("{} on {}: estimates, nothing was run\n", o.model, where);
  for (const estimate::Advice& a : advice) fmt::print("{:9} {}\n{:9}   {}\n", a.topic, a.say, "", a.because);
  for (const Processor& p : processors)
    fmt::print("{:9} {}: {}\n", "basis", p.name,
               phone ? "published figures, " + p.machine.constants.basis : p.machine.constants.basis);
}

}  // namespace

void add_advise(CLI::App& app) {
  auto o = std::make_shared<Options>();
  o->device.device.clear();
  CLI::App* verb = app.add_subcommand("advise", "where and how to train a model, with the estimates behind it");
  verb->add_option("model", o->model, model::spec_help())->required();
  o->device.add_to(*verb,
                   "a phone such as adreno-650, cpu, opencl or opencl:PART-OF-A-NAME; default: all that is here");
  verb->add_option("--batch", o->batch, "samples you would like in a step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  verb->add_option("--optimizer", o->optimizer, "sgd, adam, adamw, rmsprop, adagrad or lion")->capture_default_str();
  verb->add_option("--memory", o->memory_mib,
                   "MiB to price; default: a half, a quarter and an eighth of the batch's need")
      ->check(CLI::Range(1, 1 << 24));
  verb->add_flag("--json", o->json, "one JSON object on a line");
  verb->callback([o] { run(*o); });
}

}  // namespace situ::cli
