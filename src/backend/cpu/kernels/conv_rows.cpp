// conv_rows.cpp -- convolutions of images with few channels (backend/cpu/conv_rows.h):
//
//   conv2d_rows  y[p,q,o] = epilogue( sum over kernel rows r, and floats j of a row's window:
//                                     x[row(p,r), left(q) + j] * w[r,j,o] )
// Weights are read in place. A task is some rows of results; the copies lie on its stack.
#include "backend/cpu/conv_rows.h"

#include <memory>

#include "ops/conv_chain.h"

namespace situ::cpu {
namespace {

constexpr int64_t kTaskPixels = 192;

struct Launch {
  ConvRows conv;
  ConvColumns columns;
  float* y = nullptr;
  int64_t y_pitch = 0, rows = 0, rows_per_task = 1;  // of results, over all images
};

void run_task(const Launch& l, int64_t task) {
  float copies[ops::kMostChainCopies];
  PaddedRows padded(l.conv, copies);
  const int64_t end = std::min(l.rows, (task + 1) * l.rows_per_task);
  for (int64_t row = task * l.rows_per_task; row < end; ++row)
    conv_row(l.conv, l.columns, 0, 1, padded.lines(row), l.y, l.y_pitch, row * l.conv.window.x.out);
}

Work bind(const Call& call) {
  const Operand &x = call.in[0], &w = call.in[1], &y = call.out[0];
  auto l = std::make_shared<Launch>();
  l->conv = {ops::window_of(call.attrs, {x.shape()[1], x.shape()[2]}, {w.shape()[0], w.shape()[1]}), x.f32(), x.pitch,
             x.cols()};
  const ops::Window& window = l->conv.window;
  l->rows = x.shape()[0] * window.y.out;
  l->rows_per_task = ceil_div(kTaskPixels, window.x.out);
  ConvColumns& columns = l->columns;
  columns.epilogue = bind_epilogue(call, 2);
  columns.panels = make_panels(y.cols(), false, window.x.out, call.tuning());
  columns.panels.b = w.f32();
  columns.panels.b_step = w.pitch;
  columns.short_sums =
      short_product(window.y.kernel, window.x.kernel * x.cols(), y.cols(), columns.epilogue, call.tuning());
  l->y = y.f32();
  l->y_pitch = y.pitch;
  return {ceil_div(l->rows, l->rows_per_task), [l](int64_t task) { run_task(*l, task); }};
}

bool accepts(const ops::OpView& v, const device::Target& target) {
  const Shape &x = v.in(0).shape, &w = v.in(1).shape;
  return w[3] <= panel_width(target.tuning) && ops::is_conv_of_few_channels(v.attrs, x, w);
}
// Before the general ways, behind those for few results and Winograd's.
double seconds(const ops::OpView&, const device::Target&) { return -0.1; }
void expand(device::Expansion& e) { e.result(0, e.launch("conv2d_rows", e.inputs(), e.out_type(0), e.attrs())); }

}  // namespace

namespace kernels {
KernelList conv_rows() {
  static constexpr Kernel kernels[] = {{"conv2d_rows", bind}};
  static constexpr device::Candidate candidates[] = {
      {.op = "conv2d", .name = "rows", .accepts = accepts, .seconds = seconds, .expand = expand}};
  return {kernels, candidates};
}
}  // namespace kernels
}  // namespace situ::cpu
