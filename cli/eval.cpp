// eval.cpp -- `situ eval WEIGHTS`: accuracy over exactly the samples of a data set, on any device.
#include "base/error.h"
#include "cli/verbs.h"
#include "data/select.h"
#include "train/evaluator.h"
#include "train/metrics.h"

namespace situ::cli {

void add_eval(CLI::App& app) {
  struct Options {
    std::string weights, data, classes;
    int64_t batch = 64;
    bool details = false;
    DeviceChoice device;
  };
  auto o = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("eval", "test accuracy of trained weights");
  verb->add_option("weights", o->weights, "model.safetensors, with model.json beside it")->required();
  verb->add_option("--data", o->data, "data set; default: the one the weights were trained on");
  verb->add_option("--classes", o->classes, "only samples of these classes, such as 0-4 or 1,3");
  verb->add_option("--batch", o->batch)->capture_default_str()->check(CLI::Range(1, 1 << 20));
  verb->add_flag("--details", o->details, "precision, recall and F1 of every class, the best five, perplexity");
  o->device.add_to(*verb);
  verb->callback([o] {
    const auto device = o->device.open();
    train::Evaluator evaluator(*device, o->weights, o->batch, o->details);
    const std::string spec = o->data.empty() ? evaluator.info().data : o->data;
    if (spec.empty()) fail("the weights do not say what they were trained on: name a data set with --data");
    data::Dataset test = data::load_dataset(spec).test;
    if (!o->classes.empty()) test = data::select(test, data::parse_classes(o->classes, test.classes), 0);
    if (!test.text.empty()) test.set_length(evaluator.model().input.shape[0]);
    const train::Score score = evaluator.evaluate(test);
    print_notes(*device);
    if (!test.targets.empty())
      return fmt::print("test loss {:.4f}  error {:.4g} mean absolute, {:.4g} root mean square over {} samples  {}\n",
                        score.loss, score.mean_absolute, score.root_mean_square, score.count, device->target().name);
    fmt::print("test loss {:.4f}  test accuracy {:.2f}% over {} samples  {}\n", score.loss, 100 * score.accuracy,
               score.count, device->target().name);
    if (!o->details) return;
    fmt::print("perplexity {:.3f}  within the best five {:.2f}%\n{}", train::perplexity(score.loss),
               100 * evaluator.top5(score),
               train::to_table(train::class_report(evaluator.confusion()), evaluator.info().class_names));
  });
}

}  // namespace situ::cli
