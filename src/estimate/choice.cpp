#include "estimate/choice.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace situ::estimate {
namespace {

std::string others_text(const std::vector<Option>& options, size_t chosen) {
  std::string text;
  for (size_t i = 0; i < options.size(); ++i) {
    if (i == chosen) continue;
    const Estimate& e = options[i].estimate;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", options[i].device,
                        e.fits() ? fmt::format("{:.3g} ms", e.seconds() * 1e3) : "lacks the memory");
  }
  return text.empty() ? "" : "; " + text;
}

}  // namespace

Choice choose(const std::vector<Option>& options, const Measure& measure) {
  std::vector<size_t> usable;
  for (size_t i = 0; i < options.size(); ++i)
    if (options[i].estimate.fits()) usable.push_back(i);
  if (usable.empty()) fail_environment("no device here has the memory for this: use a smaller batch");
  const size_t fastest = *std::ranges::min_element(usable, {}, [&](size_t i) { return options[i].estimate.seconds(); });
  std::erase_if(usable, [&](size_t i) { return options[i].estimate.least() > options[fastest].estimate.most(); });
  if (usable.size() == 1) {
    const Estimate& e = options[fastest].estimate;
    return {fastest, fmt::format("estimated {:.3g} ms a step, {:.3g} to {:.3g}{}", e.seconds() * 1e3, e.least() * 1e3,
                                 e.most() * 1e3, others_text(options, fastest))};
  }
  const std::vector<double> seconds = measure(usable);
  const size_t best = static_cast<size_t>(std::ranges::min_element(seconds) - seconds.begin());
  if (std::isinf(seconds[best])) return {fastest, "by estimate alone: no device could be measured"};
  std::string rest;
  for (size_t k = 0; k < usable.size(); ++k)
    if (k != best) rest += fmt::format("; {} {:.3g} ms", options[usable[k]].device, seconds[k] * 1e3);
  return {usable[best],
          fmt::format("measured {:.3g} ms a step{}; estimates could not tell them apart", seconds[best] * 1e3, rest)};
}

}  // namespace situ::estimate
