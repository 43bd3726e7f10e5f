#include "backend/cpu/conv_splits.h"

#include <algorithm>

namespace situ::cpu {

int64_t conv_dw_splits(const ops::OpView& view, const device::Target& target) {
  const Shape &dy = view.in(1).shape, &dw = view.out(0).shape;
  const double flops = 2.0 * static_cast<double>(dy.count()) * static_cast<double>(dw[0] * dw[1] * dw[2]);
  const int64_t by_memory = target.tuning.get("conv_dw.split_bytes", 4 << 20) / (dw.count() * 4);
  const int64_t by_work = static_cast<int64_t>(flops / 3e5), most = target.tuning.get("conv_dw.splits", 16);
  return std::clamp<int64_t>(std::min({most, by_memory, by_work, dy[0] * dy[1]}), 1, 256);
}

int64_t depthwise_dw_splits(const ops::OpView& view) {
  const Shape& dy = view.in(1).shape;
  return std::clamp<int64_t>(dy.count() / 16384, 1, std::min<int64_t>(dy[0] * dy[1], 16));
}

ir::Value launch_by_splits(device::Expansion& e, std::string_view kernel, int64_t splits, const ir::Values& inputs,
                           const ir::Attrs& attrs, const Type& dw) {
  if (splits == 1) return e.launch(kernel, inputs, dw, attrs);
  const Shape& s = dw.shape;
  const ir::Value parts = e.launch(kernel, inputs, f32({splits, s[0], s[1], s[2], s[3]}), attrs);
  return e.launch("sum_splits", {parts}, dw);
}
void expand_by_splits(device::Expansion& e, std::string_view kernel, int64_t splits) {
  e.result(0, launch_by_splits(e, kernel, splits, e.inputs(), e.attrs(), e.out_type(0)));
}

}  // namespace situ::cpu
