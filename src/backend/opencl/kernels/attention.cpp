// attention.cpp -- attention and its gradients: a work-item owns a vector of queries, or of keys, of a head.
#include "ops/attention.h"

#include "backend/opencl/kernels/call.h"

namespace situ::opencl::kernels {
namespace {

// `operands`: how many come before lengths.
Call attention_call(const LaunchSpec& launch, const Target& target, size_t operands, bool by_key) {
  const ops::Attention a = ops::attention_of(launch.node.attrs, launch.in[0].shape(), launch.in[1].shape());
  const int64_t vw = tuned(target, "attention.VW"), rows = by_key ? a.keys : a.queries;
  Call call = make_call("attention.cl", launch.node.op);
  call.define("VW", vw).define("WIDTH", a.width).define("TK", tuned(target, "attention.TK"));
  call.define("MAC_FORM", tuned(target, "gemm.MAC")).define("HAS_LENGTHS", launch.in.size() > operands);
  add_tensors(call, launch.in);
  add_tensors(call, launch.out);
  add_ints(call, {a.queries, a.keys, a.group(), a.causal});
  call.arg(static_cast<float>(a.scale));
  set_grid(call, ceil_div(rows, vw), 1, a.batch, std::min<int64_t>(tuned(target, "vector.WX"), 64));
  call.global[1] = static_cast<size_t>(by_key ? a.kv_heads : a.heads);
  return call;
}

Call bind_attention(const LaunchSpec& launch, const Target& target) { return attention_call(launch, target, 3, false); }
Call bind_dq(const LaunchSpec& launch, const Target& target) { return attention_call(launch, target, 6, false); }
Call bind_dkv(const LaunchSpec& launch, const Target& target) { return attention_call(launch, target, 6, true); }

Call bind_delta(const LaunchSpec& launch, const Target& target) {
  const TensorArg& o = launch.in[0];
  const int64_t heads = launch.node.attrs.integer("heads"), width = o.cols() / heads;
  const int64_t chunk = std::max<int64_t>(1, tuned(target, "reduce.CHUNK") / width);
  Call call = make_call("attention.cl", "attention_delta");
  call.define("VW", tuned(target, "vector.VW")).define("HAS_DLSE", launch.in.size() > 2);
  add_tensors(call, launch.in);
  add_tensors(call, launch.out);
  add_ints(call, {o.rows(), heads, width, chunk});
  return set_grid(call, ceil_div(int_of(o.rows() * heads), chunk), 1, 1, tuned(target, "vector.WX"));
}

}  // namespace

KernelList attention() {
  static constexpr Kernel kernels[] = {{"attention", bind_attention, "Q K V -> O"},
                                       {"attention_delta", bind_delta, "O D"},
                                       {"attention_dq", bind_dq, "Q K V D -> Y"},
                                       {"attention_dkv", bind_dkv, "Q K V D -> Y Z"}};
  return {kernels, {}};
}

}  // namespace situ::opencl::kernels
