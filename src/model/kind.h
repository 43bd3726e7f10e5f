// kind.h -- what a kind of layer is: attributes with defaults, and how it becomes nodes.
//
// Each file kinds/NAME.cpp defines one function `KindList NAME()` in situ::model::kinds; the build finds it by the
// file's name. Model files, the zoo and `situ model kinds` know every kind through this list alone.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "model/build.h"

namespace situ::model {

struct Kind {
  std::string_view name, what;
  int least_inputs = 1, most_inputs = 1;
  std::string_view required;          // attributes that must be given, separated by spaces
  ir::Attrs (*defaults)() = nullptr;  // the others; null: none
  ir::Value (*build)(Build&, const LayerSpec&, const ir::Values&) = nullptr;
};
using KindList = std::span<const Kind>;
std::vector<KindList> all_kind_families();  // generated
const std::vector<Kind>& all_kinds();
const Kind& find_kind(std::string_view name);  // fails with the nearest names

// The layer with every attribute filled in; fails on unknown, missing or ill-typed ones.
LayerSpec with_defaults(const LayerSpec& spec);

// Attributes that are one number or one per axis: kernel=3 or [3,1].
ir::Ints pair_of(const ir::Attrs& attrs, std::string_view name);
ir::Ints padding_of(const ir::Attrs& attrs);  // pad=1, [y,x] or [top,left,bottom,right] as ops take it

}  // namespace situ::model
