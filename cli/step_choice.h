// step_choice.h -- which step of which model to measure, and the session that runs it: what `bench` and `profile`
// share.
#pragma once
#include <memory>
#include <string>

#include "cli/verbs.h"
#include "step/programs.h"
#include "step/session.h"

namespace situ::cli {

struct StepChoice {
  std::string model, residency = "resident", optimizer = "sgd", program = "train";
  int64_t batch = 64;
  DeviceChoice device;
  PartialChoice partial;
  void add_to(CLI::App& verb);
};

// The device, the model and a session with the chosen program, its states at their first values.
class StepUnderTest {
 public:
  explicit StepUnderTest(const StepChoice& choice);  // builds the programs and runs one step, so that caches are warm
  step::Session& session() { return *session_; }
  device::Device& device() { return *device_; }
  const model::Model& model() const { return model_; }
  int program() const { return session_->program(program_); }
  double first_step_seconds() const { return first_step_; }  // from the start to the end of the first step
  int64_t peak_bytes() const;                                // of the process, above what it had before the session

 private:
  std::string program_;
  model::Model model_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<step::Session> session_;
  double first_step_ = 0;
  int64_t before_ = 0;
};

}  // namespace situ::cli
