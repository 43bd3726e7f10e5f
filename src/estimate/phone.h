// phone.h -- devices that are not here, as data: devices/phones/*.json, each figure with its source or its derivation.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "estimate/estimate.h"

namespace situ::estimate {

// What the study measured on a phone (arXiv 2202.10100): seconds of a backward pass, model by model.
struct StudyTimes {
  std::vector<std::string> models;  // widths, "784-256-128-16"
  int64_t batch = 0;
  std::vector<double> cpu, gpu, gpu_before;  // before: with the kernels as they were
};

struct Processor {
  device::Target target;
  device::Roofline roofline;
};

struct Phone {
  std::string name, what;
  Processor gpu;
  std::optional<Processor> cpu;  // where a figure is published
  std::optional<StudyTimes> study;
  std::vector<std::pair<std::string, std::string>> sources, derived;  // figure -> where it comes from
};

// (file name, JSON text), from devices/phones.
const std::vector<std::pair<std::string_view, std::string_view>>& embedded_phones();

const std::vector<Phone>& all_phones();
const Phone* find_phone(std::string_view name);  // null: there is none
Phone phone_from_json(std::string_view text, std::string_view origin);

}  // namespace situ::estimate
