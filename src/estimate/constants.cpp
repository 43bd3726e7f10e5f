#include "estimate/constants.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace situ::estimate {
namespace {

using nlohmann::ordered_json;

// Of situ's kernels on an x86 core, rounded: what calibration found there (docs/estimates.md). A guess for any other.
const std::map<Class, Rate> kOnCpu = {
    {Class::product, {1e-6, 1.45, 0.5}},   {Class::convolution, {2e-6, 1.6, 0.8}}, {Class::winograd, {3e-6, 1.9, 1}},
    {Class::depthwise, {2e-6, 4, 1.5}},    {Class::attention, {2e-6, 2.5, 1}},     {Class::recurrent, {2e-6, 1.6, 1}},
    {Class::pool, {1e-6, 8, 2}},           {Class::norm, {1e-6, 0, 1.3}},          {Class::reduce, {1e-6, 0, 1.5}},
    {Class::pointwise, {0.5e-6, 15, 0.8}}, {Class::arrange, {0.5e-6, 0, 2.5}},     {Class::update, {1e-6, 0, 1}},
};

// Of published figures of others' products on Adreno (4% to 29% of the peak), 15%; nothing of situ has run on a GPU of
// a phone. A kernel that does next to nothing takes a few microseconds on any GPU.
Rate on_gpu(Class kind) {
  Rate rate = kOnCpu.at(kind);
  if (is_product(kind)) rate.flops *= 1 / 0.15 / kOnCpu.at(Class::product).flops;
  if (kind == Class::pointwise) rate.flops = 4;  // special functions have units of their own
  rate.fixed = 5e-6;
  return rate;
}

ordered_json json_of(const Rate& rate) { return {{"fixed", rate.fixed}, {"flops", rate.flops}, {"bytes", rate.bytes}}; }

Rate rate_from(const nlohmann::json& j) {
  const Rate rate{j.at("fixed"), j.at("flops"), j.at("bytes")};
  if (!(rate.fixed >= 0 && rate.flops >= 0 && rate.bytes >= 0)) throw std::domain_error("negative");
  return rate;
}

}  // namespace

Constants default_constants(Kind kind) {
  Constants constants;
  for (Class c : all_classes()) constants.classes[c] = kind == Kind::cpu ? kOnCpu.at(c) : on_gpu(c);
  constants.band = kind == Kind::cpu ? 1 : 2;
  constants.basis = kind == Kind::cpu ? "efficiencies of an x86 core" : "efficiencies of others' kernels";
  return constants;
}

const Rate& rate_of(const Constants& constants, const Work& work) {
  const auto own = constants.kernels.find(work.kernel);
  return own != constants.kernels.end() ? own->second : constants.classes.at(work.kind);
}

double seconds_of(const Work& work, const device::Roofline& roofline, const Constants& constants) {
  const Rate& rate = rate_of(constants, work);
  return rate.fixed + rate.flops * work.flops / roofline.peak_flops +
         rate.bytes * work.bytes / roofline.bandwidth(static_cast<int64_t>(work.bytes));
}

std::string to_json(const Constants& constants) {
  ordered_json j;
  j["basis"] = constants.basis;
  j["band"] = constants.band;
  j["scale"] = constants.scale;
  j["launch_seconds"] = constants.launch_seconds;
  j["step_seconds"] = constants.step_seconds;
  for (const auto& [kind, rate] : constants.classes) j["classes"][std::string(name_of(kind))] = json_of(rate);
  j["kernels"] = ordered_json::object();
  for (const auto& [kernel, rate] : constants.kernels) j["kernels"][kernel] = json_of(rate);
  return j.dump(1);
}

Constants constants_from_json(const std::string& text, const std::string& origin) {
  const auto j = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    Constants constants;
    constants.basis = j.at("basis");
    constants.band = j.at("band");
    constants.scale = j.at("scale");
    constants.launch_seconds = j.at("launch_seconds");
    constants.step_seconds = j.at("step_seconds");
    for (Class kind : all_classes())
      constants.classes[kind] = rate_from(j.at("classes").at(std::string(name_of(kind))));
    for (const auto& [kernel, rate] : j.at("kernels").items()) constants.kernels[kernel] = rate_from(rate);
    return constants;
  } catch (const std::exception&) {
    fail("{} holds no constants of estimates: `situ estimate --calibrate` makes it anew", origin);
  }
}

}  // namespace situ::estimate
