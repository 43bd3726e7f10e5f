#include "estimate/phone.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "estimate/study.h"

namespace situ::estimate {
namespace {

using nlohmann::ordered_json;

constexpr double kGiga = 1e9, kMicro = 1e-6;
constexpr int64_t kImageTexels = 1 << 16;  // the least an OpenCL device with images offers for one over a buffer

Processor processor_of(const ordered_json& phone, const char* side, const char* backend) {
  const ordered_json& j = phone.at(side);
  Processor p;
  device::Target& t = p.target;
  t.backend = backend;
  t.name = j.at("match").get<std::string>();
  t.memory = phone.at("memory_mib").get<int64_t>() << 20;
  t.max_slab = phone.at("largest_buffer_mib").get<int64_t>() << 20;
  t.compute_units = j.value("threads", 2);
  t.peak_flops = j.at("peak_gflops").get<double>() * kGiga;
  t.bandwidth = j.at("bandwidth_gbytes").get<double>() * kGiga;
  t.launch_seconds = j.at("launch_us").get<double>() * kMicro;
  t.tuning = device::tuning_for(backend, t.name);
  if (t.backend == "cpu") t.tuning.set("simd.lanes", 4);
  if (t.backend == "opencl") t.tuning.set("image.line", kImageTexels);
  p.roofline = rough_roofline(t);
  if (j.contains("copy_gbytes"))
    p.roofline.copy_in_bandwidth = p.roofline.copy_out_bandwidth = j.at("copy_gbytes").get<double>() * kGiga;
  return p;
}

std::vector<double> seconds_of_us(const ordered_json& list) {
  std::vector<double> seconds;
  for (const ordered_json& us : list) seconds.push_back(us.get<double>() * kMicro);
  return seconds;
}

StudyTimes study_from(const ordered_json& j) {
  StudyTimes s{j.at("models").get<std::vector<std::string>>(), j.at("batch").get<int64_t>(),
               seconds_of_us(j.at("cpu_us")), seconds_of_us(j.at("gpu_us")), seconds_of_us(j.at("gpu_before_us"))};
  if (s.cpu.size() != s.models.size() || s.gpu.size() != s.models.size() || s.gpu_before.size() != s.models.size())
    fail("the study has a time for each model");
  return s;
}

// What no file says is taken from the study's phones: copies, and the wait around each launch.
void add_from_study(std::vector<Phone>& phones) {
  const StudyFit fit = fit_study(phones);
  double mean = 0;
  for (const auto& [name, trip] : fit.trips) mean += trip / static_cast<double>(fit.trips.size());
  for (size_t i = 0; i < phones.size(); ++i) {
    device::Roofline& r = phones[i].gpu.roofline;
    const auto own = fit.trips.find(phones[i].name);
    const double trip = own == fit.trips.end() ? mean : own->second;
    r.write_seconds = r.read_seconds = 0;  // a trip has them
    r.wait_seconds = std::max(0.0, trip - r.launch_seconds);
    bool known = false;
    for (const auto& [figure, text] : phones[i].sources) known = known || figure == "gpu.copy_gbytes";
    if (!known) r.copy_in_bandwidth = r.copy_out_bandwidth = fit.bandwidth;
  }
}

}  // namespace

Phone phone_from_json(std::string_view text, std::string_view origin) {
  const ordered_json j = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    Phone phone;
    phone.name = j.at("name");
    phone.what = j.at("what");
    phone.gpu = processor_of(j, "gpu", "opencl");
    if (j.contains("cpu")) phone.cpu = processor_of(j, "cpu", "cpu");
    if (j.contains("study")) phone.study = study_from(j.at("study"));
    for (const auto& [figure, source] : j.at("sources").items()) phone.sources.emplace_back(figure, source);
    for (const auto& [figure, why] : j.at("derived").items()) phone.derived.emplace_back(figure, why);
    return phone;
  } catch (const nlohmann::json::exception& e) {
    fail("{} describes no phone: {}", origin, e.what());
  }
}

const std::vector<Phone>& all_phones() {
  static const std::vector<Phone> phones = [] {
    std::vector<Phone> list;
    for (const auto& [file, text] : embedded_phones()) list.push_back(phone_from_json(text, file));
    add_from_study(list);
    return list;
  }();
  return phones;
}

const Phone* find_phone(std::string_view name) {
  for (const Phone& phone : all_phones())
    if (phone.name == name) return &phone;
  return nullptr;
}

}  // namespace situ::estimate
