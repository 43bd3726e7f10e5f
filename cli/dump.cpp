// dump.cpp -- `situ dump MODEL --after=STAGE`: a program as text after any stage of the compiler.
#include "base/error.h"
#include "cli/verbs.h"
#include "step/compile.h"
#include "step/programs.h"

namespace situ::cli {

void add_dump(CLI::App& app) {
  struct Options {
    std::string model, after = "place", program = "train", optimizer = "sgd";
    int64_t batch = 64;
    bool unfused = false;
    DeviceChoice device;
    PartialChoice partial;
  };
  auto o = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("dump", "print a program after a stage of the compiler");
  verb->add_option("model", o->model, model::spec_help())->required();
  verb->add_option(
          "--after", o->after,
          "model, a pass (dead_code, .., update_grouping), lower, hoist, views, settle, order, in_place or place")
      ->capture_default_str();
  verb->add_option("--program", o->program, "train, micro, apply, evaluate, infer or prepare")->capture_default_str();
  verb->add_option("--batch", o->batch)->capture_default_str()->check(CLI::Range(1, 1 << 20));
  verb->add_option("--optimizer", o->optimizer, "sgd, adam, adamw, rmsprop, adagrad or lion")->capture_default_str();
  verb->add_flag("--unfused", o->unfused, "the graph as the naive residency runs it");
  o->device.add_to(*verb);
  o->partial.add_to(*verb);
  verb->callback([o] {
    const model::Model model = model::find_model(o->model);
    step::ProgramSpec spec{model, o->batch, {}};
    spec.optimizer = model::default_optimizer(model::parse_optimizer(o->optimizer));
    spec.partial = o->partial.of(model);
    const bool prepared = o->program == "prepare";
    std::string text, stages;
    step::CompileOptions options;
    options.fuse = !o->unfused;
    options.trace = [&](const std::string& program, const std::string& stage, const std::string& graph) {
      if (program != o->program) return;
      if (stages.find(stage) == std::string::npos) stages += (stages.empty() ? "" : ", ") + stage;
      if (stage == o->after) text = graph;  // a pass that runs twice: its last result
    };
    const auto device = o->device.open();
    spec.optimizer.scales_loss = device->activations == DType::f16;
    step::compile({step::program_by_name(spec, prepared ? "evaluate" : o->program)}, *device, options);
    if (stages.empty()) fail("{} needs no `{}` program on this device", o->model, o->program);
    if (text.empty()) fail("there is no stage `{}` for program {}: use one of {}", o->after, o->program, stages);
    fmt::print("{}", text);
  });
}

}  // namespace situ::cli
