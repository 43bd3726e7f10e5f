// metrics.h -- what the totals that programs keep on the device say: read once, worked out here.
//
//   confusion matrix   row = label, column = answer (op `confusion`), any weights
//   error totals       {sum w |e|, sum w e^2, sum w, sum w e} (op `regression_metrics`)
#pragma once
#include <span>
#include <string>
#include <vector>

namespace situ::train {

struct ClassScore {
  double count = 0;  // weight of the samples with this label
  double precision = 0, recall = 0, f1 = 0;
};
struct ClassReport {
  double accuracy = 0;
  std::vector<ClassScore> classes;
  ClassScore macro;  // means over all classes; count: of all samples
};
// A ratio of 0 / 0 is 0: a class that was never answered has precision 0, one that never occurred recall 0.
ClassReport class_report(std::span<const double> confusion);
// One line per class, then the macro averages and the accuracy. Classes without a name are called by their number.
std::string to_table(const ClassReport& report, std::span<const std::string> names = {});

struct ErrorReport {
  double mean_absolute = 0, root_mean_square = 0, bias = 0;
};
ErrorReport error_report(std::span<const double> totals);

double perplexity(double mean_loss);  // exp(loss), for a loss in natural logarithms

}  // namespace situ::train
