// features.h -- what a frozen part of a model makes of every sample, computed once and kept as a data set of its own.
#pragma once
#include "model/split.h"
#include "step/session.h"
#include "train/trainer.h"

namespace situ::train {

// Program `features`: x -> output `features`, up to the latest cut behind which something is trained.
ir::Graph features_program(const model::Model& model, int64_t batch, const model::Partial& partial);

// Runs it over all samples. Labels and names are those of the data set, samples have the type that crosses the cut.
data::Dataset features_of(step::Session& session, const Type& across, int64_t batch, const data::Dataset& dataset,
                          const data::Normalisation& normalisation, const Report& report);

// Features go into the rest as they are; targets as before.
data::Normalisation unchanged(const Type& across, const data::Normalisation& of_samples);

// Every state that both sessions have; averages of `to` begin with their parameters.
void give_parameters(step::Session& from, step::Session& to);
// The same states back, trained; of a parameter that `from` averages, the average.
void take_trained(step::Session& from, step::Session& to);

}  // namespace situ::train
