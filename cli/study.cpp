// study.cpp -- `situ estimate --study`: the study's table beside estimates of it, and what its phones would do with a
// resident step. Markdown, for docs/estimates.md.
#include "estimate/study.h"

#include <cmath>

#include "cli/machines.h"
#include "estimate/paper_device.h"
#include "step/programs.h"

namespace situ::cli {
namespace {

constexpr double kSmall = 0.05;  // a share of movement, launch and wait that no longer matters

const char* model_name(size_t m) {
  constexpr const char* names[] = {"M1", "M2", "M3", "M4"};
  return names[m];
}

estimate::Estimate resident(const estimate::Phone& phone, const std::string& spec, int64_t batch) {
  const model::Model model = model::find_model(spec);
  const estimate::Machine machine{phone.gpu.roofline, estimate::default_constants(estimate::Kind::gpu)};
  return estimate::estimate(step::train_program({model, batch, {}}), step::Residency::resident,
                            *estimate::make_paper_device(phone.gpu.target), machine);
}

struct Means {  // geometric: of times that differ by factors
  double table = 0, estimated = 0;
  int count = 0;
  void add(double t, double e) {
    table += std::log(t);
    estimated += std::log(e);
    ++count;
  }
  std::string text() const {
    return fmt::format("{:.0f} / {:.0f}", std::exp(table / count) * 1e6, std::exp(estimated / count) * 1e6);
  }
};

void print_naive(const std::vector<const estimate::Phone*>& phones) {
  const estimate::StudyFit fit = estimate::fit_study(estimate::all_phones());
  fmt::print(
      "Naive, backward, us: the study / estimated (error; share of movement, launch and wait). Fitted on M1 and "
      "M3.\n\n");
  fmt::print("| phone |");
  for (size_t m = 0; m < 4; ++m) fmt::print(" {} {} |", model_name(m), phones.front()->study->models[m]);
  fmt::print(" all models |\n|---|---|---|---|---|---|\n");
  std::vector<Means> by_model(4);
  for (const estimate::Phone* phone : phones) {
    fmt::print("| {} ({}) |", phone->name, phone->what.substr(0, phone->what.find(',')));
    Means by_phone;
    for (size_t m = 0; m < 4; ++m) {
      const estimate::Estimate e = estimate::study_estimate(
          fit, *phone, estimate::study_work(phone->study->models[m], phone->study->batch, phone->gpu.target));
      for (Means* means : {&by_phone, &by_model[m]}) means->add(phone->study->gpu[m], e.seconds());
      fmt::print(" {:.0f} / {:.0f} ({:+.0f}%; {:.0f}%) |", phone->study->gpu[m] * 1e6, e.seconds() * 1e6,
                 100 * (e.seconds() / phone->study->gpu[m] - 1), 100 * e.outside());
    }
    fmt::print(" {} |\n", by_phone.text());
  }
  fmt::print("| all phones |");
  for (const Means& means : by_model) fmt::print(" {} |", means.text());
  fmt::print(" geometric means |\n");
  fmt::print("\nA trip costs");
  for (const auto& [name, trip] : fit.trips) fmt::print(" {:.0f} us on {},", trip * 1e6, name);
  fmt::print(" copies run at {:.1f} GB/s, kernels at {:.0f} GFLOP/s (all phones together).\n", fit.bandwidth * 1e-9,
             fit.rate * 1e-9);
}

void print_resident(const std::vector<const estimate::Phone*>& phones) {
  struct Work {
    const char* model;
    int64_t batch;
  };
  constexpr Work works[] = {{"mlp:16-16", 32},          {"mlp:16-16-16-16", 32}, {"mlp:256-256", 32},
                            {"mlp:784-256-128-16", 32}, {"lenet5", 64},          {"resnet20", 32},
                            {"mobilenetv2@96", 8},      {"resnet18", 4}};
  fmt::print("\nResident, whole step: estimated ms (share of movement, launch and wait).\n\n| model, batch |");
  for (const estimate::Phone* phone : phones) fmt::print(" {} |", phone->name);
  fmt::print("\n|---|---|---|---|\n");
  for (const Work& w : works) {
    fmt::print("| {}, {} |", w.model, w.batch);
    for (const estimate::Phone* phone : phones) {
      const estimate::Estimate e = resident(*phone, w.model, w.batch);
      fmt::print(" {:.3g} ({:.0f}%) |", e.seconds() * 1e3, 100 * e.outside());
    }
    fmt::print("\n");
  }
  fmt::print("\nThe share falls below 5% from these widths W of mlp:W-W-W-W on, batch 32 (powers of two tried):");
  for (const estimate::Phone* phone : phones) {
    int64_t width = 64;
    while (width < 65536 && resident(*phone, fmt::format("mlp:{0}-{0}-{0}-{0}", width), 32).outside() >= kSmall)
      width *= 2;
    const double flops = resident(*phone, fmt::format("mlp:{0}-{0}-{0}-{0}", width), 32).flops;
    fmt::print(" {} {} ({:.2g} GFLOP a step){}", phone->name, width, flops * 1e-9,
               phone == phones.back() ? ".\n" : ",");
  }
}

}  // namespace

void print_study() {
  std::vector<const estimate::Phone*> phones;
  for (const estimate::Phone& phone : estimate::all_phones())
    if (phone.study) phones.push_back(&phone);
  print_naive(phones);
  print_resident(phones);
}

}  // namespace situ::cli
