// norm_launches.h -- how back ends launch norms: statistics of columns, at once or in parts that a second launch joins,
// and the pointwise function that reads them behind. Kernels: OP, OP_partial, moments_final, norm_sums_final, fused;
// covariance_partial and _final, norm_weights_dw and _dcov.
#pragma once
#include "device/candidate.h"

namespace situ::device {

// In how many parts a back end takes the rows of x for this op's statistics; 1: at once.
using PartsOf = int64_t (*)(const Target& target, std::string_view op, const Shape& x);

void expand_statistics(Expansion& e, PartsOf parts_of);  // of moments, norm_sums and its relatives
void expand_norm_apart(Expansion& e, PartsOf parts_of);  // of a node of ops/norm_fused.h

// Of covariance: covariance_partial over parts of the rows, covariance_final. Of norm_weights_grad: norm_weights_dw for
// what belongs to columns of w, norm_weights_dcov for the statistics, which are sums over them.
void expand_covariance(Expansion& e, PartsOf parts_of);
void expand_norm_weights_grad(Expansion& e);

}  // namespace situ::device
