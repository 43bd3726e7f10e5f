// norm_columns.h -- which norms take their rows in parts (device/norm_launches.h).
#pragma once
#include "device/norm_launches.h"

namespace situ::cpu {

int64_t statistics_parts(const device::Target& target, std::string_view op, const Shape& x);

}  // namespace situ::cpu
