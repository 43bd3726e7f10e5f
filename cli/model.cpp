// model.cpp -- `situ model`: what there is; `situ model show MODEL`: layer by layer, or as a model file with --json.
#include "cli/verbs.h"
#include "model/kind.h"
#include "model/model_file.h"
#include "model/summary.h"

namespace situ::cli {
namespace {

void list_models() {
  fmt::print("{:<18}  {:>12}  {}\n", "model", "parameters", "what it is");
  for (const model::ZooEntry& entry : model::zoo_entries()) {
    const std::string open = std::string(entry.takes_resolution ? "@" : "") + (entry.takes_width ? ":" : "");
    fmt::print("{:<18}  {:>12}  {}\n", std::string(entry.name) + open,
               model::summarise(model::find_model(entry.name)).parameters, entry.what);
  }
  fmt::print(
      "\n@: takes a resolution or length, NAME@96; `:`: takes a width, NAME@96:0.5. Also mlp:WIDTH-..-WIDTH and "
      "model files, FILE.json.\n");
}

void list_kinds() {
  for (const model::Kind& kind : model::all_kinds()) {
    fmt::print("{:<16} {}\n", kind.name, kind.what);
    const ir::Attrs defaults = kind.defaults ? kind.defaults() : ir::Attrs{};
    std::string attrs(kind.required);
    for (const auto& [name, value] : defaults.entries())
      attrs +=
          (attrs.empty() ? "" : " ") + name + "=" +
          (std::holds_alternative<double>(value) ? fmt::format("{}", std::get<double>(value)) : ir::to_string(value));
    if (!attrs.empty()) fmt::print("{:<16}   {}\n", "", attrs);
  }
}

}  // namespace

void add_model(CLI::App& app) {
  struct Options {
    std::string model;
    PartialChoice partial;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("model", "list the models; show one layer by layer, or as a model file");
  CLI::App* show = verb->add_subcommand("show", "one model, layer by layer");
  show->add_option("model", o->model, model::spec_help())->required();
  o->partial.add_to(*show);
  show->add_flag("--json", o->json, "as a model file, to change and to train");
  CLI::App* kinds = verb->add_subcommand("kinds", "the kinds of layers a model file may use");
  show->callback([o] {
    const model::Model model = model::find_model(o->model);
    if (o->json) return fmt::print("{}", model::print_model(model));
    fmt::print("{}", model::table_of(model, model::summarise(model, o->partial.of(model))));
  });
  kinds->callback(list_kinds);
  verb->callback([verb] {
    if (verb->get_subcommands().empty()) list_models();
  });
}

}  // namespace situ::cli
