// summary.h -- a model layer by layer: what each one gives, holds and costs.
#pragma once
#include <string>
#include <vector>

#include "model/build.h"

namespace situ::model {

struct LayerSummary {
  std::string name, kind;
  Type output;                   // for one sample
  int64_t parameters = 0;        // trained or not; what another layer declared is counted there
  double flops = 0;              // forward, one sample
  int64_t activation_bytes = 0;  // of its result, one sample
};
struct Summary {
  std::vector<LayerSummary> layers;
  int64_t parameters = 0, trained = 0, activation_bytes = 0;
  double flops = 0;
};
Summary summarise(const Model& model, const Partial& partial = {});
std::string table_of(const Model& model, const Summary& summary);  // for a terminal

}  // namespace situ::model
