// machines.h -- processors as estimates see them: those of this machine, or of a phone; and which one to train on.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "estimate/calibrate.h"
#include "estimate/phone.h"
#include "ir/graph.h"

namespace situ::cli {

struct Processor {
  std::string name;
  std::unique_ptr<device::Device> device;  // on paper, for a phone
  estimate::Machine machine;
};

estimate::Kind kind_of(const device::Device& device);
// Then a step's processor time is its time, whoever else wants the processor.
bool works_on_one_thread(const device::Device& device);
// What was measured of it, or rough rates and efficiencies of other machines.
estimate::Machine machine_of(const device::Device& device);
std::vector<std::string> local_devices();  // cpu, and opencl:NAME for each that there is

// A phone of devices/phones; null for a device of this machine, fails for anything else.
const estimate::Phone* phone_named(const std::string& name);
// Those of the phone, or the one the choice names, or all that are here where it names none.
std::vector<Processor> processors_of(const DeviceChoice& choice, const estimate::Phone* phone);

using Program = std::function<ir::Graph(const device::Device&)>;
// Where the choice is `auto`, names the device on which this program is estimated, or if need be measured, to be
// fastest, and says so in one line on stderr.
void settle(DeviceChoice& choice, const Program& program, step::Residency residency, int classes);

void print_study();  // study.cpp

}  // namespace situ::cli
