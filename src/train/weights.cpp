#include "train/weights.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/names.h"
#include "io/safetensors.h"
#include "model/init.h"
#include "model/optimizer.h"

namespace situ::train {
namespace {

using nlohmann::json;

bool is_saved(const ir::State& state, bool with_slots) {
  return model::has_role(state, "parameter") || model::has_role(state, "statistic") ||
         (with_slots && (model::has_role(state, "slot") || model::has_role(state, "counter")));
}

bool is_lora(const std::string& name) { return name.find(".lora_") != std::string::npos; }

const ir::State* find_state(const step::Session& session, const std::string& name) {
  for (const ir::State& state : session.states())
    if (state.name == name) return &state;
  return nullptr;
}

// Its average, where the session keeps one.
std::vector<double> values_of(step::Session& session, const std::string& name) {
  return session.get_double(find_state(session, model::ema_name(name)) ? model::ema_name(name) : name);
}

// W + scale * A B, where a layer has LoRA matrices beside its weight.
std::vector<double> merged(step::Session& session, const ir::State& state) {
  std::vector<double> weight = values_of(session, state.name);
  if (!state.name.ends_with(".weight")) return weight;
  const std::string layer = state.name.substr(0, state.name.size() - 7);
  const ir::State* down = find_state(session, layer + ".lora_A.weight");
  if (!down) return weight;
  const std::vector<double> a = values_of(session, down->name), b = values_of(session, layer + ".lora_B.weight");
  const auto rank = static_cast<size_t>(down->type.shape.cols()), out = b.size() / rank;
  const double scale = down->attrs.number("lora_scale");
  for (size_t i = 0; i < weight.size(); ++i)
    for (size_t k = 0; k < rank; ++k) weight[i] += scale * a[i / out * rank + k] * b[k * out + i % out];
  return weight;
}

// The values of a state whose first rows, in the file's order, come from a smaller tensor.
std::vector<float> grown(step::Session& session, const ir::State& state, const io::Tensor& tensor) {
  const std::vector<double> present = model::to_file_order(state, session.get_double(state.name));
  std::vector<float> values(present.begin(), present.end());
  const std::vector<float> rows = io::to_floats(tensor);
  std::copy(rows.begin(), rows.end(), values.begin());
  return values;
}

bool may_grow(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  return from.size() == to.size() && !from.empty() && from[0] < to[0] &&
         std::equal(from.begin() + 1, from.end(), to.begin() + 1);
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
    if (!is_saved(state, with_slots) || is_lora(state.name)) continue;
    const std::vector<double> ordered = model::to_file_order(state, merged(session, state));
    values.emplace_back(ordered.begin(), ordered.end());
    tensors.push_back(io::f32_tensor(state.name, model::file_shape(state), values.back()));
  }
  io::write_safetensors(path, std::move(tensors), {{"format", "pt"}, {"model", info.model}});
  const json j = {{"model", info.model},
                  {"data", info.data},
                  {"architecture", info.architecture.empty() ? json() : json::parse(info.architecture)},
                  {"class_names", info.class_names},
                  {"classes", info.classes},
                  {"mean", info.normalisation.mean},
                  {"std", info.normalisation.std},
                  {"target_mean", info.normalisation.target_mean},
                  {"target_std", info.normalisation.target_std},
                  {"loss", model::name_of(info.loss.kind)},
                  {"epochs", info.epochs},
                  {"seed", info.seed},
                  {"test_accuracy", info.test_accuracy},
                  {"device", info.device}};
  write_file_atomic(info_path(path), j.dump(2) + "\n");
}

void load_weights(step::Session& session, const std::string& path, const LoadOptions& options) {
  const io::TensorFile file = io::read_safetensors(path);
  for (const ir::State& state : session.states()) {
    if (std::any_of(options.leave.begin(), options.leave.end(),
                    [&](const std::string& p) { return matches(p, state.name); }))
      continue;
    const bool needed = is_saved(state, false) && !is_lora(state.name);
    const io::Tensor* tensor = file.find(state.name);
    if (!tensor && needed) fail("{} has no tensor `{}`: it holds the weights of another model", path, state.name);
    if (!tensor || !is_saved(state, true)) continue;
    const std::vector<int64_t> shape = model::file_shape(state);
    const bool grows = options.grow && may_grow(tensor->shape, shape);
    if (tensor->shape != shape && !grows)
      fail("{}: tensor `{}` is [{}], the model needs [{}]: it holds the weights of another model", path, state.name,
           fmt::join(tensor->shape, ","), fmt::join(shape, ","));
    const std::vector<float> values =
        model::from_file_order(state, grows ? grown(session, state, *tensor) : io::to_floats(*tensor));
    session.set(state.name, values);
    if (find_state(session, model::ema_name(state.name))) session.set(model::ema_name(state.name), values);
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
    if (j.contains("architecture") && j["architecture"].is_object()) info.architecture = j["architecture"].dump();
    info.class_names = j.value("class_names", std::vector<std::string>{});
    info.classes = j.value("classes", 0);
    info.normalisation = {j["mean"].get<std::vector<float>>(), j["std"].get<std::vector<float>>(),
                          j.value("target_mean", 0.0f), j.value("target_std", 1.0f)};
    info.loss.kind = model::parse_loss(j.value("loss", "cross-entropy"));
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
