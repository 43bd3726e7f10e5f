// norm_columns.h -- the launches that make statistics of columns: one, or two where few columns have many rows.
#pragma once
#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {

// Of `moments` (one operand) or of norm_sums and its relatives; types and attributes are those of that op.
ir::Values launch_statistics(Expansion& e, std::string_view op, const ir::Values& inputs,
                             const std::vector<Type>& types, const ir::Attrs& attrs);

}  // namespace situ::opencl::kernels
