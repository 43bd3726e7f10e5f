// onednn.cpp -- times oneDNN's convolutions and products on the layouts situ has, one line read, one line written.
//
//   conv2d|conv2d_dx|conv2d_dw  N H W C  R S O  stride_y stride_x  top left bottom right  dilation_y dilation_x  groups
//   matmul  M N K ta tb
// Images are channels last and weights [R,S,C,O], as situ holds them; oneDNN may choose its own order of weights, and
// arranging them (or their gradient) is part of the time, since weights change with every step. Runs take turns between
// kSets of operands, as situ's candidates do when they are measured. Seconds, best of several. Built and run by
// bench/onednn; the thread count is OMP_NUM_THREADS.
#include <chrono>
#include <iostream>
#include <oneapi/dnnl/dnnl.hpp>
#include <sstream>
#include <unordered_map>
#include <vector>

namespace {
using namespace dnnl;
using Dims = memory::dims;
using Tag = memory::format_tag;
constexpr auto kF32 = memory::data_type::f32;
constexpr size_t kSets = 3;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Context {
  engine cpu{engine::kind::cpu, 0};
  stream queue{cpu};

  std::vector<memory> tensors(const memory::desc& desc) {
    std::vector<memory> all;
    for (size_t set = 0; set < kSets; ++set) {
      memory& m = all.emplace_back(desc, cpu);
      auto* data = static_cast<float*>(m.get_data_handle());
      for (size_t i = 0; i < desc.get_size() / sizeof(float); ++i) data[i] = static_cast<float>(i % 13) - 6;
    }
    return all;
  }
  void arrange(memory& from, memory& to) {
    if (from.get_desc() != to.get_desc()) reorder(from, to).execute(queue, from, to);
  }
  template <typename Run>
  double best(const Run& run) {
    double best = 1e9;
    size_t set = 0;
    run(set);
    queue.wait();
    for (const double begin = now(); now() - begin < 0.15;) {
      set = (set + 1) % kSets;
      const double start = now();
      run(set);
      queue.wait();
      best = std::min(best, now() - start);
    }
    return best;
  }
};

double time_conv(Context& c, const std::string& kind, std::istream& in) {
  int64_t n, h, w, ch, r, s, o, sy, sx, top, left, bottom, right, dy, dx, groups;
  in >> n >> h >> w >> ch >> r >> s >> o >> sy >> sx >> top >> left >> bottom >> right >> dy >> dx >> groups;
  const int64_t oh = (h + top + bottom - dy * (r - 1) - 1) / sy + 1,
                ow = (w + left + right - dx * (s - 1) - 1) / sx + 1;
  const Dims wd = groups > 1 ? Dims{groups, o / groups, ch / groups, r, s} : Dims{o, ch, r, s};
  const memory::desc x({n, ch, h, w}, kF32, Tag::nhwc), y({n, o, oh, ow}, kF32, Tag::nhwc), any(wd, kF32, Tag::any);
  const memory::desc ours(wd, kF32, groups > 1 ? Tag::hwigo : Tag::hwio);
  const Dims strides{sy, sx}, dilation{dy - 1, dx - 1}, before{top, left}, after{bottom, right};
  const convolution_forward::primitive_desc forward(
      {prop_kind::forward_training, algorithm::convolution_auto, x, any, y, strides, dilation, before, after}, c.cpu);
  std::vector<memory> mx = c.tensors(x), my = c.tensors(y), plain = c.tensors(ours);
  if (kind == "conv2d") {
    memory arranged(forward.weights_desc(), c.cpu);
    const convolution_forward run(forward);
    return c.best([&](size_t i) {
      c.arrange(plain[i], arranged);
      run.execute(c.queue, {{DNNL_ARG_SRC, mx[i]}, {DNNL_ARG_WEIGHTS, arranged}, {DNNL_ARG_DST, my[i]}});
    });
  }
  if (kind == "conv2d_dx") {
    const convolution_backward_data::primitive_desc back(
        {algorithm::convolution_auto, x, any, y, strides, dilation, before, after}, c.cpu, forward);
    memory arranged(back.weights_desc(), c.cpu);
    const convolution_backward_data run(back);
    return c.best([&](size_t i) {
      c.arrange(plain[i], arranged);
      run.execute(c.queue, {{DNNL_ARG_DIFF_DST, my[i]}, {DNNL_ARG_WEIGHTS, arranged}, {DNNL_ARG_DIFF_SRC, mx[i]}});
    });
  }
  const convolution_backward_weights::primitive_desc back(
      {algorithm::convolution_auto, x, any, y, strides, dilation, before, after}, c.cpu, forward);
  memory arranged(back.diff_weights_desc(), c.cpu);
  const convolution_backward_weights run(back);
  return c.best([&](size_t i) {
    run.execute(c.queue, {{DNNL_ARG_SRC, mx[i]}, {DNNL_ARG_DIFF_DST, my[i]}, {DNNL_ARG_DIFF_WEIGHTS, arranged}});
    c.arrange(arranged, plain[i]);
  });
}

double time_matmul(Context& c, std::istream& in) {
  int64_t m, n, k, ta, tb;
  in >> m >> n >> k >> ta >> tb;
  const memory::desc a({m, k}, kF32, ta ? Tag::ba : Tag::ab), b({k, n}, kF32, tb ? Tag::ba : Tag::ab);
  const memory::desc y({m, n}, kF32, Tag::ab);
  const matmul run(matmul::primitive_desc({a, b, y}, c.cpu));
  std::vector<memory> ma = c.tensors(a), mb = c.tensors(b), my = c.tensors(y);
  return c.best([&](size_t i) {
    run.execute(c.queue, {{DNNL_ARG_SRC, ma[i]}, {DNNL_ARG_WEIGHTS, mb[i]}, {DNNL_ARG_DST, my[i]}});
  });
}
}  // namespace

int main() {
  Context context;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::string kind;
    in >> kind;
    try {
      std::cout << (kind == "matmul" ? time_matmul(context, in) : time_conv(context, kind, in)) << std::endl;
    } catch (const dnnl::error& e) {
      std::cerr << line << ": " << e.what() << '\n';
      std::cout << "nan" << std::endl;
    }
  }
}
