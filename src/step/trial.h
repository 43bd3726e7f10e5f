// trial.h -- a program's kernels, each compared with the oracle once per driver before it is used.
//
// Drivers compile kernels, and some compile a few of them wrongly or die while they do it. What is unknown is tried all
// at once (one program, built in parallel); if that fails or kills the process, one by one, this time or the next. What
// is wrong, refused or fatal goes into Device::left_out, other candidates take its place, and are tried in turn.
#pragma once
#include <vector>

#include "device/device.h"
#include "step/compile.h"

namespace situ::step {

// Does nothing where the device has no trials_folder, or kernels that no driver compiles.
void try_kernels(device::Device& device, const std::vector<ir::Graph>& programs, const CompileOptions& options);

// What earlier self-tests found, into Device::left_out; the file they are kept in, empty if there is none.
std::string load_left_out(device::Device& device);

}  // namespace situ::step
