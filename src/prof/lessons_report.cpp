// lessons_report.cpp -- the lessons as tables, beside the study's own figures.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/version.h"
#include "device/study.h"
#include "prof/lessons.h"

namespace situ::prof {
namespace {

namespace study = device::study;
using nlohmann::ordered_json;

const study::Model* of_study(std::string_view spec) {
  for (const study::Model& m : study::models())
    if (m.spec == spec) return &m;
  return nullptr;
}

// The CPU at its best: what the study set the GPU against.
double best_cpu(const Lesson& lesson) {
  double best = INFINITY;
  for (const Entry& e : lesson.entries)
    if (!e.opencl) best = std::min(best, e.m.best_seconds);
  return best;
}

std::string title(const Lesson& lesson) {
  const study::Model* known = of_study(lesson.model);
  double flops = 0;
  for (const Entry& e : lesson.entries) flops = e.m.ledger.flops;
  return fmt::format("{}{}, batch {}, {:.3g} MFLOP a step", known ? fmt::format("{}: ", known->name) : "", lesson.model,
                     lesson.batch, flops * 1e-6);
}

// --- tables ---------------------------------------------------------------------------------------------------------
using Table = std::vector<std::vector<std::string>>;  // the first row is the head, the first column names

std::string ms(double seconds) { return fmt::format("{:.{}f}", seconds * 1e3, seconds < 0.1 ? 3 : 1); }
std::string percent(double share) { return fmt::format("{:.0f}%", 100 * share); }
std::string ratio(double r) { return fmt::format("{:.{}f}", r, r < 10 ? 2 : 1); }

Table stages_of(const Lesson& lesson) {
  Table table = {{"", "opencl ms", "cpu ms", "ratio", "to best cpu", "move+launch+wait", "cpu's", "launches", "waits",
                  "bytes in", "bytes out"}};
  const double best = best_cpu(lesson);
  for (const Stage& stage : lesson_stages()) {
    const Entry *g = lesson.find(stage.name, true), *c = lesson.find(stage.name, false);
    if (!g) continue;
    table.push_back({std::string(stage.name), ms(g->m.best_seconds), c ? ms(c->m.best_seconds) : "-",
                     c ? ratio(g->m.best_seconds / c->m.best_seconds) : "-", ratio(g->m.best_seconds / best),
                     percent(g->lost()), c ? percent(c->lost()) : "-", fmt::format("{}", g->m.counted.launches),
                     fmt::format("{}", g->m.counted.waits), fmt::format("{}", g->m.counted.bytes_in),
                     fmt::format("{}", g->m.counted.bytes_out)});
  }
  return table;
}

Table study_of(const study::Model& model) {
  Table table = {
      {"the study, backward pass only", "gpu ms", "with better kernels", "cpu ms", "ratio", "with better kernels"}};
  for (size_t i = 0; i < study::phones().size(); ++i) {
    const study::Phone& phone = study::phones()[i];
    const study::Times& t = model.on[i];
    table.push_back({fmt::format("{} ({}, {})", phone.name, phone.chip, phone.gpu), ms(t.gpu * 1e-6),
                     ms(t.gpu_improved * 1e-6), ms(t.cpu * 1e-6), ratio(t.gpu / t.cpu), ratio(t.gpu_improved / t.cpu)});
  }
  return table;
}

std::string as_text(const Table& table) {
  std::vector<size_t> widths(table.front().size());
  for (const auto& row : table)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : table) {
    for (size_t i = 0; i < row.size(); ++i)
      text += i == 0 ? fmt::format("  {:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
    text += "\n";
  }
  return text;
}

std::string as_markdown(const Table& table) {
  std::string text;
  for (size_t r = 0; r < table.size(); ++r) {
    text += fmt::format("| {} |\n", fmt::join(table[r], " | "));
    if (r > 0) continue;
    text += "|";
    for (size_t i = 0; i < table[r].size(); ++i) text += i == 0 ? "---|" : "---:|";
    text += "\n";
  }
  return text;
}

std::string all(const Lessons& lessons, std::string (*print)(const Table&), std::string_view before,
                std::string_view after) {
  std::string text;
  for (const Lesson& lesson : lessons.list) {
    text += fmt::format("{}{}{}\n", before, title(lesson), after) + print(stages_of(lesson)) + "\n";
    if (const study::Model* known = of_study(lesson.model)) text += print(study_of(*known)) + "\n";
  }
  return text;
}

std::string machines(const Lessons& lessons) {
  return fmt::format("opencl: {}, driver {}. cpu: {}. Whole training steps, best of several blocks.", lessons.opencl,
                     lessons.driver, lessons.cpu);
}

// --- JSON -----------------------------------------------------------------------------------------------------------
ordered_json entry_json(const Entry& e) {
  return {{"ms", e.m.best_seconds * 1e3},
          {"median_ms", e.m.median_seconds * 1e3},
          {"steps", e.m.steps},
          {"lost", e.lost()},
          {"compute", e.m.split.compute / e.m.split.wall},
          {"movement", e.m.split.movement / e.m.split.wall},
          {"launch", e.m.split.launch / e.m.split.wall},
          {"wait", e.m.split.wait / e.m.split.wall},
          {"idle", e.m.split.idle / e.m.split.wall},
          {"launches", e.m.counted.launches},
          {"waits", e.m.counted.waits},
          {"bytes_in", e.m.counted.bytes_in},
          {"bytes_out", e.m.counted.bytes_out}};
}

ordered_json study_json() {
  ordered_json j = {{"source", study::kSource}, {"batch", study::kBatch}, {"measured", "backward pass, microseconds"}};
  for (const study::Model& m : study::models())
    for (size_t i = 0; i < study::phones().size(); ++i) {
      const study::Phone& p = study::phones()[i];
      j["times"].push_back({{"name", m.name},
                            {"model", m.spec},
                            {"phone", p.name},
                            {"chip", p.chip},
                            {"gpu", p.gpu},
                            {"cpu_us", m.on[i].cpu},
                            {"gpu_us", m.on[i].gpu},
                            {"gpu_improved_us", m.on[i].gpu_improved}});
    }
  return j;
}

}  // namespace

std::string lessons_text(const Lessons& lessons) {
  std::string text;
  for (const Stage& stage : lesson_stages()) text += fmt::format("  {:<15} {}\n", stage.name, stage.what);
  return fmt::format("{}\n{}\n{}", machines(lessons), text, all(lessons, as_text, "", ""));
}

std::string lessons_markdown(const Lessons& lessons) {
  return machines(lessons) + "\n\n" + all(lessons, as_markdown, "### ", "\n");
}

std::string lessons_json(const Lessons& lessons) {
  ordered_json j = {{"situ", kVersion}, {"cpu", lessons.cpu}, {"opencl", lessons.opencl}, {"driver", lessons.driver}};
  for (const Stage& stage : lesson_stages()) j["stages"].push_back({{"name", stage.name}, {"what", stage.what}});
  for (const Lesson& lesson : lessons.list) {
    ordered_json model = {{"model", lesson.model},
                          {"title", title(lesson)},
                          {"batch", lesson.batch},
                          {"best_cpu_ms", best_cpu(lesson) * 1e3}};
    for (const Entry& e : lesson.entries) model["stages"][e.stage][e.opencl ? "opencl" : "cpu"] = entry_json(e);
    j["models"].push_back(std::move(model));
  }
  j["study"] = study_json();
  return j.dump(1);
}

}  // namespace situ::prof
