// predict.cpp -- `situ predict WEIGHTS FILE..`: the most likely classes of image files.
#include <algorithm>
#include <numeric>

#include "cli/verbs.h"
#include "train/evaluator.h"

namespace situ::cli {

void add_predict(CLI::App& app) {
  struct Options {
    std::string weights;
    std::vector<std::string> files;
    int top = 3;
    DeviceChoice device;
  };
  auto o = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("predict", "classify image files (PNG, JPEG, PGM, PPM) with trained weights");
  verb->add_option("weights", o->weights, "model.safetensors, with model.json beside it")->required();
  verb->add_option("files", o->files, "image files, resized to what the model takes")->required();
  verb->add_option("--top", o->top, "classes to print per file")->capture_default_str()->check(CLI::Range(1, 1000));
  o->device.add_to(*verb);
  verb->callback([o] {
    const auto device = o->device.open();
    train::Evaluator evaluator(*device, o->weights, std::min<int64_t>(64, static_cast<int64_t>(o->files.size())));
    const auto rows = evaluator.predict(o->files);
    print_notes(*device);
    const std::vector<std::string>& names = evaluator.info().class_names;
    auto name_of = [&](size_t c) { return c < names.size() ? names[c] : fmt::format("class {}", c); };
    for (size_t i = 0; i < rows.size(); ++i) {
      std::vector<size_t> order(rows[i].size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rows[i][a] > rows[i][b]; });
      fmt::print("{}:", o->files[i]);
      for (size_t k = 0; k < order.size() && k < static_cast<size_t>(o->top); ++k)
        fmt::print("  {} {:.1f}%", name_of(order[k]), 100 * rows[i][order[k]]);
      fmt::print("\n");
    }
  });
}

}  // namespace situ::cli
