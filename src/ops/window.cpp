#include "ops/window.h"

namespace situ::ops {
namespace {

Ints list_of(const Attrs& attrs, std::string_view name, const Ints& otherwise, int64_t least) {
  const Ints list = attrs.ints(name, otherwise);
  if (list.size() != otherwise.size()) fail("`{}` needs {} numbers, not {}", name, otherwise.size(), list.size());
  for (int64_t v : list)
    if (v < least || v > (1 << 20)) fail("`{}` holds {}: use {} or more", name, v, least);
  return list;
}

WindowAxis complete(WindowAxis axis, std::string_view name) {
  if (axis.kernel < 1 || axis.in < 1) fail("the {} of the kernel and of the input must be at least 1", name);
  const int64_t reach = (axis.kernel - 1) * axis.dilation + 1, padded = axis.in + axis.before + axis.after;
  if (reach > padded)
    fail("the window spans {} in {}, the padded input only {}: use a smaller kernel or more padding", reach, name,
         padded);
  axis.out = (padded - reach) / axis.stride + 1;
  return axis;
}

}  // namespace

Window window_of(const Attrs& attrs, const Ints& size, const Ints& kernel) {
  if (size.size() != 2 || kernel.size() != 2) fail("`size` and `kernel` need two numbers, height and width");
  const Ints stride = list_of(attrs, "stride", {1, 1}, 1), dilation = list_of(attrs, "dilation", {1, 1}, 1);
  const Ints pad = list_of(attrs, "pad", {0, 0, 0, 0}, 0);  // top, left, bottom, right
  const WindowAxis y{size[0], 0, kernel[0], stride[0], dilation[0], pad[0], pad[2]};
  const WindowAxis x{size[1], 0, kernel[1], stride[1], dilation[1], pad[1], pad[3]};
  return {complete(y, "height"), complete(x, "width")};
}

}  // namespace situ::ops
