#include "cli/step_choice.h"

#include <malloc.h>

#include <algorithm>

#include "base/clock.h"
#include "base/process.h"
#include "cli/machines.h"
#include "prof/report.h"
#include "step/run.h"

namespace situ::cli {

void StepChoice::add_to(CLI::App& verb) {
  verb.add_option("model", model, model::spec_help())->required();
  device.add_to(verb, kDevices);
  partial.add_to(verb);
  verb.add_option("--batch", batch)->capture_default_str()->check(CLI::Range(1, 1 << 20));
  verb.add_option("--residency", residency, "resident, weights or naive")->capture_default_str();
  verb.add_option("--optimizer", optimizer, "sgd, adam, adamw, rmsprop, adagrad or lion")->capture_default_str();
  verb.add_option("--program", program, "train, micro, apply, evaluate or infer")->capture_default_str();
}

StepUnderTest::StepUnderTest(const StepChoice& choice)
    : program_(choice.program), model_(model::find_model(choice.model)) {
  const double begin = now();
  step::ProgramSpec spec{model_, choice.batch, {}};
  spec.optimizer = model::default_optimizer(model::parse_optimizer(choice.optimizer));
  spec.partial = choice.partial.of(model_);
  DeviceChoice on = choice.device;
  const auto program = [&](const device::Device& device) {
    spec.optimizer.scales_loss = device.activations == DType::f16;
    return step::program_by_name(spec, program_);
  };
  settle(on, program, step::parse_residency(choice.residency), model_.classes);
  device_ = on.open();
  spec.optimizer.scales_loss = device_->activations == DType::f16;
  step::SessionOptions options;
  options.residency = step::parse_residency(choice.residency);
  {  // builds the programs and fills the cache, so that the measured session starts warm
    step::Session warm(*device_, {step::program_by_name(spec, program_)}, options);
    prof::run_one_step(warm, warm.program(program_), model_.classes);
    first_step_ = now() - begin;
  }
  malloc_trim(0);
  before_ = resident_bytes();
  session_ = std::make_unique<step::Session>(*device_, std::vector{step::program_by_name(spec, program_)}, options);
  step::set_initial_values(*session_, 1);
}

int64_t StepUnderTest::peak_bytes() const { return std::max<int64_t>(0, peak_resident_bytes() - before_); }

}  // namespace situ::cli
