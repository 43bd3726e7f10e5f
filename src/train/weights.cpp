#include "train/weights.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "io/safetensors.h"
#include "model/init.h"

namespace situ::train {
namespace {

using nlohmann::json;

bool is_saved(const ir::State& state, bool with_slots) {
  return model::has_role(state, "parameter") ||
         (with_slots && (model::has_role(state, "slot") || model::has_role(state, "counter")));
}

}  // namespace

std::string info_path(const std::string& weights_path) {
  return std::filesystem::path(weights_path).replace_extension(".json").string();
}

void save_weights(step::Session& session, const std::string& path, const WeightsInfo& info, bool with_slots) {
  std::vector<std::vector<float>> values;
  std::vector<io::Tensor> tensors;
  values.reserve(session.states().size());  // the tensors point into it
  for (const ir::State& state : session.states()) {
    if (!is_saved(state, with_slots)) continue;
    const std::vector<double> ordered = model::to_file_order(state, session.get_double(state.name));
    values.emplace_back(ordered.begin(), ordered.end());
    tensors.push_back(io::f32_tensor(state.name, model::file_shape(state), values.back()));
  }
  io::write_safetensors(path, std::move(tensors), {{"format", "pt"}, {"model", info.model}});
  const json j = {{"model", info.model},
                  {"data", info.data},
                  {"classes", info.classes},
                  {"mean", info.normalisation.mean},
                  {"std", info.normalisation.std},
                  {"epochs", info.epochs},
                  {"seed", info.seed},
                  {"test_accuracy", info.test_accuracy},
                  {"device", info.device}};
  write_file_atomic(info_path(path), j.dump(2) + "\n");
}

void load_weights(step::Session& session, const std::string& path) {
  const io::TensorFile file = io::read_safetensors(path);
  for (const ir::State& state : session.states()) {
    const bool parameter = model::has_role(state, "parameter");
    const io::Tensor* tensor = file.find(state.name);
    if (!tensor && parameter) fail("{} has no tensor `{}`: it holds the weights of another model", path, state.name);
    if (!tensor || !is_saved(state, true)) continue;
    if (tensor->shape != model::file_shape(state))
      fail("{}: tensor `{}` is [{}], the model needs [{}]: it holds the weights of another model", path, state.name,
           fmt::join(tensor->shape, ","), fmt::join(model::file_shape(state), ","));
    session.set(state.name, model::from_file_order(state, io::to_floats(*tensor)));
  }
}

WeightsInfo load_info(const std::string& weights_path) {
  const std::string path = info_path(weights_path);
  const json j = json::parse(read_file(path, 1 << 20), nullptr, /*allow_exceptions=*/false);
  const bool usable = j.is_object() && j.contains("model") && j["model"].is_string() && j.contains("mean") &&
                      j["mean"].is_array() && j.contains("std") && j["std"].is_array();
  if (!usable) fail("{} does not describe weights: it must lie beside them as `situ train` wrote it", path);
  try {
    WeightsInfo info;
    info.model = j["model"];
    info.data = j.value("data", "");
    info.classes = j.value("classes", 0);
    info.normalisation = {j["mean"].get<std::vector<float>>(), j["std"].get<std::vector<float>>()};
    info.epochs = j.value("epochs", int64_t{0});
    info.seed = j.value("seed", uint64_t{0});
    info.test_accuracy = j.value("test_accuracy", 0.0);
    info.device = j.value("device", "");
    return info;
  } catch (const json::exception& e) {
    fail("{} does not describe weights ({}): it must lie beside them as `situ train` wrote it", path, e.what());
  }
}

}  // namespace situ::train
