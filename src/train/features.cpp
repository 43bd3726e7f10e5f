#include "train/features.h"

#include <algorithm>

#include "model/build.h"
#include "model/init.h"
#include "model/optimizer.h"
#include "train/loader.h"

namespace situ::train {

ir::Graph features_program(const model::Model& model, int64_t batch, const model::Partial& partial) {
  const model::Split split = model::split_frozen(model, partial);
  ir::Graph graph;
  graph.name = "features";
  const ir::Value x = graph.input("x", model::batch_of(batch, model.input));
  graph.output("features", model::build(split.front, graph, x, {false, partial}).logits);
  return graph;
}

data::Dataset features_of(step::Session& session, const Type& across, int64_t batch_size, const data::Dataset& dataset,
                          const data::Normalisation& normalisation, const Report& report) {
  data::Dataset result{.name = "features of " + dataset.name, .count = dataset.count, .classes = dataset.classes};
  result.height = across.shape.rows();
  result.width = 1;
  result.channels = across.shape.cols();
  result.shape = across.shape;
  result.labels = dataset.labels;
  result.targets = dataset.targets;
  result.class_names = dataset.class_names;
  result.series.reserve(static_cast<size_t>(dataset.count * across.count()));
  const int program = session.program("features");
  data::Batches batches(dataset, batch_size, normalisation);
  for (Loader loader(session, batches); loader.next();) {
    session.run(program, loader.batch());
    const std::vector<float> values = session.output(program, "features");
    result.series.insert(result.series.end(), values.begin(), values.begin() + loader.slot().valid * across.count());
    Progress p;
    p.caching = true;
    p.step = loader.slot().index + 1;
    p.steps = batches.count();
    if (report) report(p);
  }
  return result;
}

data::Normalisation unchanged(const Type& across, const data::Normalisation& of_samples) {
  data::Normalisation n = of_samples;
  n.mean.assign(static_cast<size_t>(across.shape.cols()), 0.0f);
  n.std.assign(static_cast<size_t>(across.shape.cols()), 1.0f);
  return n;
}

namespace {

bool knows(const step::Session& session, const std::string& name) {
  return std::ranges::any_of(session.states(), [&](const ir::State& s) { return s.name == name; });
}

bool travels(const ir::State& state) { return !state.attrs.flag("derived") && !model::has_role(state, "metric"); }

}  // namespace

void give_parameters(step::Session& from, step::Session& to) {
  for (const ir::State& state : from.states()) {
    if (!travels(state)) continue;
    for (const std::string& name : {state.name, model::ema_name(state.name)})
      if (knows(to, name)) to.set(name, from.get_double(state.name));
  }
}

void take_trained(step::Session& from, step::Session& to) {
  for (const ir::State& state : to.states()) {
    if (!travels(state) || !knows(from, state.name)) continue;
    const std::string average = model::ema_name(state.name);
    to.set(state.name, from.get_double(knows(from, average) ? average : state.name));
  }
}

}  // namespace situ::train
