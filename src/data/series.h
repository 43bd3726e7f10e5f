// series.h -- reader of .ts files (UEA archive, sktime, aeon): labelled windows of several sensors.
//
//   @problemName ..  @univariate false  @dimensions 6  @equalLength true  @seriesLength 100  @classLabel true a b c
//   @data
//   1.0,2.0,..:0.5,0.4,..:..:a          one sample: a list of numbers per sensor, separated by :, and its class
//
// Files with @targetLabel true end each sample with a number to predict. Samples must have equal lengths and no missing
// values.
#pragma once
#include <string>

#include "data/dataset.h"

namespace situ::data {

Dataset read_series(const std::string& path);
bool has_series(const std::string& folder);  // NAME_TRAIN.ts and NAME_TEST.ts

}  // namespace situ::data
