#include "train/history.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace situ::train {
namespace {

std::string path_of(const std::string& folder) { return folder + "/history.json"; }

nlohmann::ordered_json json_of(const std::vector<History::Point>& points) {
  auto list = nlohmann::ordered_json::array();
  for (const History::Point& p : points) list.push_back({p.step, p.loss});
  return list;
}

std::vector<History::Point> points_of(const nlohmann::json& list) {
  std::vector<History::Point> points;
  for (const auto& p : list) points.push_back({p.at(0), p.at(1).is_null() ? 0 : p.at(1).get<double>()});
  return points;
}

}  // namespace

void History::add(const Progress& p) {
  if (p.caching) return;
  const int64_t step = (p.epoch - 1) * p.steps + p.step;
  training.push_back({step, p.loss});
  if (p.epoch_done) test.push_back({step, p.test.loss});
}

void save_history(const History& history, const std::string& folder) {
  const nlohmann::ordered_json j = {{"training", json_of(history.training)}, {"test", json_of(history.test)}};
  write_file_atomic(path_of(folder), j.dump() + "\n");
}

History load_history(const std::string& folder) {
  const auto j = nlohmann::json::parse(read_file(path_of(folder), 64 << 20), nullptr, /*allow_exceptions=*/false);
  try {
    return {points_of(j.at("training")), points_of(j.at("test"))};
  } catch (const nlohmann::json::exception&) {
    fail("{} holds no losses: `situ train` writes it into its output folder", path_of(folder));
  }
}

}  // namespace situ::train
