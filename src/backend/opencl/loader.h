// loader.h -- finds and opens the OpenCL library.
//
// SITU_OPENCL_LIBRARY names the one to use; otherwise the usual names are tried, then where Android vendors put it.
#pragma once
#include "backend/opencl/cl_api.h"

namespace situ::opencl {

// The functions of the library the environment asks for now. Opened once per library and kept until the process ends:
// drivers start threads and do not survive being unloaded. Fails with one sentence that says what to install.
const Api& load_opencl();

bool opencl_installed();  // load_opencl would succeed

}  // namespace situ::opencl
