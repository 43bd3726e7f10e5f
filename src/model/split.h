// split.h -- a model cut in two where everything before the cut is frozen: what the first part makes of a sample is the
// same in every epoch, so it can be computed once.
#pragma once
#include "model/model.h"
#include "model/partial.h"

namespace situ::model {

struct Split {
  Model front;  // its result, per sample, is the input of `rest`
  Model rest;   // layers keep their names, and so their parameters
};

// The latest cut with nothing trained, random or updated before it, and one value across it. Fails where there is none.
Split split_frozen(const Model& model, const Partial& partial);

}  // namespace situ::model
