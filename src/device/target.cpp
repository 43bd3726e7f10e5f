// target.cpp -- tuning records from devices/*.json: {"records": [{"backend", "match", "tuning": {key: int}}]}.
#include "device/target.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "device/embedded.h"

namespace situ::device {

int64_t Tuning::get(std::string_view key, int64_t otherwise) const {
  auto it = values_.find(key);
  return it == values_.end() ? otherwise : it->second;
}

Tuning tuning_for(std::string_view backend, std::string_view device_name) {
  for (const auto& [file, text] : embedded_tuning_files()) {
    const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    SITU_ASSERT(json.is_object() && json.contains("records"), "devices/{} is not a list of records", file);
    for (const auto& record : json["records"]) {
      if (record.value("backend", "") != backend) continue;
      if (device_name.find(record.value("match", "")) == std::string_view::npos) continue;
      Tuning tuning;
      for (const auto& [key, value] : record["tuning"].items()) tuning.set(key, value.get<int64_t>());
      return tuning;
    }
  }
  return {};
}

}  // namespace situ::device
