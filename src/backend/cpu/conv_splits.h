// conv_splits.h -- into how many parts the pixels of a convolution's weight gradient are split.
#pragma once
#include "device/candidate.h"

namespace situ::cpu {

// As many as give every thread of a big machine something, but no more memory than conv_dw.split_bytes and no part
// shorter than a few hundred thousand operations. By shape and tuning alone: sums must not change with the threads.
int64_t conv_dw_splits(const ops::OpView& view, const device::Target& target);

// The same for a depthwise one, which is bound by memory: parts of image rows, each of at least 16384 values.
int64_t depthwise_dw_splits(const ops::OpView& view);

// Launches `kernel` with a result [splits, R, S, C, O] and adds the parts; with one split, straight to `dw`.
ir::Value launch_by_splits(device::Expansion& e, std::string_view kernel, int64_t splits, const ir::Values& inputs,
                           const ir::Attrs& attrs, const Type& dw);
// The same for the node's own operands, as its result.
void expand_by_splits(device::Expansion& e, std::string_view kernel, int64_t splits);

}  // namespace situ::cpu
