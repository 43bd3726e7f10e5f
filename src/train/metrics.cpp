#include "train/metrics.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace situ::train {
namespace {

double ratio(double part, double whole) { return whole == 0 ? 0 : part / whole; }

std::string line(std::string_view name, size_t width, const ClassScore& s) {
  return fmt::format("{:<{}}  {:>9.4f}  {:>6.4f}  {:>6.4f}  {:>8g}\n", name, width, s.precision, s.recall, s.f1,
                     s.count);
}

}  // namespace

ClassReport class_report(std::span<const double> confusion) {
  const auto n = static_cast<size_t>(std::llround(std::sqrt(static_cast<double>(confusion.size()))));
  SITU_ASSERT(n > 0 && n * n == confusion.size(), "{} numbers are no square matrix", confusion.size());
  ClassReport report;
  double right = 0;
  for (size_t c = 0; c < n; ++c) {
    const double hits = confusion[c * n + c];
    ClassScore s;
    double answered = 0;
    for (size_t i = 0; i < n; ++i) {
      s.count += confusion[c * n + i];
      answered += confusion[i * n + c];
    }
    s.precision = ratio(hits, answered);
    s.recall = ratio(hits, s.count);
    s.f1 = ratio(2 * s.precision * s.recall, s.precision + s.recall);
    report.classes.push_back(s);
    const auto classes = static_cast<double>(n);
    report.macro.count += s.count;
    report.macro.precision += s.precision / classes;
    report.macro.recall += s.recall / classes;
    report.macro.f1 += s.f1 / classes;
    right += hits;
  }
  report.accuracy = ratio(right, report.macro.count);
  return report;
}

std::string to_table(const ClassReport& report, std::span<const std::string> names) {
  auto name_of = [&](size_t c) { return c < names.size() ? names[c] : std::to_string(c); };
  size_t width = std::string_view("accuracy").size();
  for (size_t c = 0; c < report.classes.size(); ++c) width = std::max(width, name_of(c).size());
  std::string text = fmt::format("{:<{}}  precision  recall      f1     count\n", "class", width);
  for (size_t c = 0; c < report.classes.size(); ++c) text += line(name_of(c), width, report.classes[c]);
  text += line("macro", width, report.macro);
  return text + fmt::format("{:<{}}  {:>9.4f}\n", "accuracy", width, report.accuracy);
}

ErrorReport error_report(std::span<const double> totals) {
  SITU_ASSERT(totals.size() == 4, "error totals are 4 numbers, not {}", totals.size());
  return {ratio(totals[0], totals[2]), std::sqrt(ratio(totals[1], totals[2])), ratio(totals[3], totals[2])};
}

double perplexity(double mean_loss) { return std::exp(mean_loss); }

}  // namespace situ::train
