#include "estimate/advice.h"

#include <algorithm>
#include <optional>

#include "base/error.h"

namespace situ::estimate {
namespace {

constexpr double kWorthwhile = 0.9;  // a gain below a tenth is not worth a change
constexpr double kNearlyBest = 1.1;  // a batch within a tenth of the best rate will do

std::string ms(double seconds) { return fmt::format("{:.3g} ms", seconds * 1e3); }
std::string mib(int64_t bytes) { return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / (1 << 20)); }
double per_sample(const Estimate& e, int64_t batch) { return e.seconds() / static_cast<double>(batch); }

size_t fastest_of(const std::vector<Estimate>& estimates) {
  size_t best = 0;
  for (size_t i = 1; i < estimates.size(); ++i) {
    const Estimate &a = estimates[i], &b = estimates[best];
    if (a.fits() != b.fits() ? a.fits() : a.seconds() < b.seconds()) best = i;
  }
  return best;
}

Advice where(const std::vector<Place>& places, const std::vector<Estimate>& estimates, size_t best, int64_t batch) {
  std::string numbers;
  bool close = false;
  for (size_t i = 0; i < places.size(); ++i) {
    const Estimate& e = estimates[i];
    numbers += fmt::format("{}{} {} ({} to {}){}", i ? "; " : "", places[i].name, ms(e.seconds()), ms(e.least()),
                           ms(e.most()), e.fits() ? "" : fmt::format(", but {} do not fit", mib(e.memory)));
    close = close || (i != best && e.fits() && e.least() <= estimates[best].most());
  }
  return {"device",
          fmt::format("train on {}{}", places[best].name,
                      close ? ", though the estimates are too close to be sure: `--device auto` measures there" : ""),
          fmt::format("a step of {} samples: {}", batch, numbers)};
}

// Each takes a part of the batch in proportion to its speed; then gradients go one way and parameters the other.
std::optional<Advice> split(const std::vector<Place>& places, const std::vector<Estimate>& estimates, size_t best,
                            const Question& q) {
  std::optional<size_t> other;
  for (size_t i = 0; i < places.size(); ++i)
    if (i != best && places[i].silicon != places[best].silicon && estimates[i].fits() &&
        (!other || estimates[i].seconds() < estimates[*other].seconds()))
      other = i;
  if (!other) return {};
  const double a = estimates[best].seconds(), b = estimates[*other].seconds();
  const double exchange =
      2 * (static_cast<double>(q.parameter_bytes) / places[best].copy_bandwidth + places[best].wait_seconds);
  const double together = a * b / (a + b) + exchange;
  const bool pays = together < kWorthwhile * a;
  return Advice{
      "split",
      pays ? fmt::format("a batch split between {} and {} would pay, but situ does not do that", places[best].name,
                         places[*other].name)
           : "do not split a batch between processors",
      fmt::format("estimated {} together ({} of it exchanging {} of gradients) against {} on {} alone, memory "
                  "they would share not counted",
                  ms(together), ms(exchange), mib(q.parameter_bytes), ms(a), places[best].name)};
}

Advice which_batch(const Place& place, const Question& q) {
  struct Tried {
    int64_t batch;
    Estimate e;
  };
  std::vector<Tried> tried;
  for (int64_t batch : q.batches)
    if (Estimate e = place.estimate({.batch = batch}); e.fits()) tried.push_back({batch, std::move(e)});
  if (tried.empty()) return {"batch", "no batch fits this device", "see the memory below"};
  const auto rate = [](const Tried& t) { return per_sample(t.e, t.batch); };
  const Tried& best = *std::ranges::min_element(tried, {}, rate);
  const Tried& enough =
      *std::ranges::find_if(tried, [&](const Tried& t) { return rate(t) <= kNearlyBest * rate(best); });
  std::string numbers;
  for (const Tried& t : tried)
    numbers += fmt::format("{}{}: {} in {}", numbers.empty() ? "" : ", ", t.batch, ms(rate(t)), mib(t.e.memory));
  return {"batch", fmt::format("a batch of {} is enough: larger ones gain less than a tenth per sample", enough.batch),
          "per sample, by batch: " + numbers};
}

Advice which_precision(const Place& place, const Question& q, const Estimate& plain) {
  if (!place.halves) return {"precision", "fp32", fmt::format("{} stores activations as fp32 only", place.name)};
  const Estimate half = place.estimate({.batch = q.batch, .half = true});
  const bool faster = half.seconds() < kWorthwhile * plain.seconds();
  return {"precision", faster ? "fp16 (--precision fp16)" : "fp32; fp16 if memory is short",
          fmt::format("fp16 takes {} and {} against {} and {}", ms(half.seconds()), mib(half.memory),
                      ms(plain.seconds()), mib(plain.memory))};
}

Advice what_to_freeze(const Place& place, const Question& q, const Estimate& all) {
  std::string numbers = fmt::format("all {} in {}", ms(all.seconds()), mib(all.memory));
  double last = all.seconds();
  const auto add = [&](const std::string& name, const Variant& v) {
    const Estimate e = place.estimate(v);
    numbers += fmt::format("; {} {} in {}", name, ms(e.seconds()), mib(e.memory));
    return e.seconds();
  };
  last = add("the last layer", {.batch = q.batch, .train = "last"});
  add("biases", {.batch = q.batch, .train = "bias"});
  add("LoRA of rank 4", {.batch = q.batch, .lora = 4});
  return {"freeze",
          fmt::format("to adapt trained weights, the last layer alone is {:.1f} times as fast (--train last)",
                      all.seconds() / last),
          numbers};
}

Advice what_memory_costs(const Place& place, const Question& q, const Estimate& wanted) {
  std::string numbers;
  const double full = per_sample(wanted, q.batch);
  std::vector<int64_t> budgets = q.budgets;
  if (budgets.empty()) budgets = {wanted.memory / 2, wanted.memory / 4, wanted.memory / 8};
  for (int64_t budget : budgets) {
    std::string text = "nothing fits";
    for (int64_t batch : q.batches) {
      if (batch > q.batch) break;
      const Estimate e = place.estimate({.batch = batch});
      if (e.memory <= budget)
        text = fmt::format("batch {} at {:.2f} times the time per sample", batch, per_sample(e, batch) / full);
    }
    numbers += fmt::format("{}{}: {}", numbers.empty() ? "" : "; ", mib(budget), text);
  }
  return {"memory",
          fmt::format("a batch of {} needs {}{}; with less, a smaller batch and --accumulate keep the step the same",
                      q.batch, mib(wanted.memory), wanted.fits() ? "" : ", more than there is"),
          numbers};
}

}  // namespace

std::vector<Advice> advise(const std::vector<Place>& places, const Question& q) {
  SITU_ASSERT(!places.empty() && !q.batches.empty());
  std::vector<Estimate> estimates;
  for (const Place& place : places) estimates.push_back(place.estimate({.batch = q.batch}));
  const size_t best = fastest_of(estimates);
  std::vector<Advice> list{where(places, estimates, best, q.batch)};
  if (auto advice = split(places, estimates, best, q)) list.push_back(std::move(*advice));
  list.push_back(which_batch(places[best], q));
  list.push_back(which_precision(places[best], q, estimates[best]));
  list.push_back(what_to_freeze(places[best], q, estimates[best]));
  list.push_back(what_memory_costs(places[best], q, estimates[best]));
  return list;
}

}  // namespace situ::estimate
