// select.h -- a part of a data set: some classes, the first few samples of each.
#pragma once
#include <string_view>
#include <vector>

#include "data/dataset.h"

namespace situ::data {

std::vector<int> parse_classes(std::string_view text, int classes);  // "5-9", "0,3,7"; fails beyond the classes

// Keeps the samples of these classes (empty: all), and of each class the first per_class (0: all). Labels stay as they
// are, so that a model's head means the same before and after.
Dataset select(const Dataset& data, const std::vector<int>& classes, int64_t per_class);

}  // namespace situ::data
