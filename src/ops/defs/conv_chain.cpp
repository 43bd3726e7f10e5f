// conv_chain.cpp -- up to three convolutions in one node, as in the blocks of MobileNetV2: a 1x1 convolution that makes
// more channels (or a network's first, of few), a depthwise one of 3 x 3 taps, a 1x1 convolution that makes fewer, each
// with its epilogue:
//
//   y = project( depthwise( expand(x) ) )
// Made by fusion (pass/conv_chains.cpp) where nothing else reads what lies between, so that a device may keep it near;
// after gradients are built, so it has no gradient rule of its own.
#include "ops/conv_chain.h"

#include "ops/epilogue.h"
#include "ops/magnitude.h"

namespace situ::ops::defs {
namespace {

const OpDef& conv2d_op() { return get("conv2d"); }

// A stage's inputs, the first of them being x or what the stage before gave.
template <typename T>
std::vector<T> inputs_of(const ChainStage& stage, const T& x, std::span<const T> all) {
  std::vector<T> inputs{x};
  inputs.insert(inputs.end(), all.begin() + stage.w, all.begin() + stage.end);
  return inputs;
}

Types type(const OpView& v) {
  const int64_t channels = chain_channels(v);
  const ChainStages stages = chain_stages(v.attrs, channels);
  need(stages.depthwise.there, "`depthwise` is needed: the epilogue of the depthwise convolution, which may be empty");
  need(stages.expand.there || stages.project.there, "a depthwise convolution alone is a conv2d");
  if (v.arity() != stages.arity) fail("the stages take {} operands, not {}", stages.arity, v.arity());
  Type x = v.in(0);
  for (const ChainStage* stage : stages.in_order()) {
    const OpView view{"conv2d", inputs_of<Type>(*stage, x, v.ins), {}, stage->attrs};
    const Shape w = v.in(stage->w).shape;
    const Type y = conv2d_op().type(view)[0];
    if (stage == &stages.depthwise)
      need(chain_takes(stage->attrs, {x.shape[1], x.shape[2]}, {w[0], w[1]}),
           "the depthwise convolution needs 3 x 3 taps, a stride of 1 or 2, and at most two pixels of padding");
    else if (stage == &stages.expand)
      need(chain_begins(stage->attrs, x.shape, w), "a chain begins with a convolution of 1 x 1 or of few channels");
    else
      need(w[0] == 1 && w[1] == 1, "the last convolution is 1 x 1");
    if (stage != &stages.project)
      need(chain_takes_inside(stage->attrs), "inside a chain an epilogue is a bias, then relu or relu6, or less");
    x = y;
  }
  return {x};
}

Cost cost(const OpView& v) {
  const ChainStages stages = chain_stages(v.attrs, chain_channels(v));
  Cost sum;
  Type x = v.in(0);
  for (const ChainStage* stage : stages.in_order()) {
    OpView view{"conv2d", inputs_of<Type>(*stage, x, v.ins), {}, stage->attrs};
    x = conv2d_op().type(view)[0];
    view.outs = {x};
    sum.flops += conv2d_op().cost(view).flops;
  }
  return sum;
}

// Every stage by what `run` does for a convolution.
void each_stage(const RefCall& c, void (*run)(const RefCall&)) {
  std::vector<Type> types;
  for (const RefTensor& t : c.in) types.push_back(t.type);
  const ChainStages stages = chain_stages(c.attrs, chain_channels({"conv_chain", types, {}, c.attrs}));
  std::vector<double> before, values;
  RefTensor x = c.in[0];
  for (const ChainStage* stage : stages.in_order()) {
    const std::vector<RefTensor> inputs = inputs_of<RefTensor>(*stage, x, c.in);
    std::vector<Type> input_types;
    for (const RefTensor& t : inputs) input_types.push_back(t.type);
    RefTensor y{conv2d_op().type({"conv2d", input_types, {}, stage->attrs})[0]};
    values.assign(static_cast<size_t>(y.count()), 0.0);
    y.data = stage == stages.in_order().back() ? c.out[0].data : values.data();
    run({stage->attrs, inputs, {&y, 1}});
    before.swap(values);
    x = {y.type, y.data == c.out[0].data ? y.data : before.data()};
  }
}
void reference(const RefCall& c) { each_stage(c, conv2d_op().reference); }
void magnitude(const RefCall& c) { each_stage(c, conv2d_op().magnitude); }

Values expand(Graph& graph, const Values& in, const Attrs& attrs) {
  std::vector<Type> types;
  for (Value v : in) types.push_back(graph.type(v));
  const ChainStages stages = chain_stages(attrs, chain_channels({"conv_chain", types, {}, attrs}));
  Value x = in[0];
  for (const ChainStage* stage : stages.in_order())
    x = emit(graph, "conv2d", inputs_of<Value>(*stage, x, in), stage->attrs);
  return {x};
}

// Whole vectors and others, all stages and two of them, both strides, odd sizes, images of few and of many pixels.
constexpr std::string_view kExamples =
    "f32[2,5,6,7], f32[1,1,7,20], f32[20], f32[3,3,1,20], f32[20], f32[1,1,20,9], f32[9] {pad=[1,1,1,1], "
    "expand=\"bias+relu6\", depthwise=\"bias+relu6\", project=\"bias\"}; "
    "f32[1,9,8,16], f32[1,1,16,96], f32[96], f32[3,3,1,96], f32[96], f32[1,1,96,24], f32[24] {stride=[2,2], "
    "pad=[1,1,1,1], expand=\"bias+relu6\", depthwise=\"bias+relu6\", project=\"bias\"}; "
    "f32[2,12,12,24], f32[1,1,24,144], f32[144], f32[3,3,1,144], f32[144], f32[1,1,144,24], f32[24], f32[2,12,12,24] "
    "{pad=[1,1,1,1], expand=\"bias+relu6\", depthwise=\"bias+relu6\", project=\"bias+residual\"}; "
    "f32[5,6,6,64], f32[1,1,64,96], f32[96], f32[3,3,1,96], f32[96], f32[1,1,96,64], f32[64], f32[5,6,6,64] "
    "{pad=[1,1,1,1], expand=\"bias+relu6\", depthwise=\"bias+relu6\", project=\"bias+residual\"}; "
    "f32[4,3,3,40], f32[1,1,40,200], f32[3,3,1,200], f32[1,1,200,70] {stride=[2,2], pad=[1,1,1,1], expand=\"relu\", "
    "depthwise=\"\", project=\"relu\"}; "
    "f32[4,2,3,20], f32[1,1,20,40], f32[3,3,1,40], f32[40] {pad=[1,1,1,1], expand=\"relu6\", "
    "depthwise=\"bias+relu6\"}; "
    "f32[3,7,7,17], f32[1,1,17,70], f32[70], f32[3,3,1,70], f32[70] {pad=[1,1,1,1], expand=\"bias+relu6\", "
    "depthwise=\"bias+relu\"}; "
    "f32[2,13,11,40], f32[3,3,1,40], f32[40], f32[1,1,40,16], f32[16] {pad=[1,1,1,1], depthwise=\"bias+relu6\", "
    "project=\"bias+relu\"}; "
    "f32[1,6,35,33], f32[3,3,1,33], f32[1,1,33,65], f32[1,4,33,65] {depthwise=\"relu\", project=\"residual\"}; "
    "f32[1,20,50,3], f32[1,1,3,130], f32[130], f32[3,3,1,130], f32[1,1,130,3] {stride=[2,2], pad=[0,0,1,1], "
    "expand=\"bias\", depthwise=\"relu6\", project=\"\"}; "
    "f32[1,4,5,2], f32[1,1,2,6], f32[3,3,1,6], f32[1,1,6,4], f32[1,6,7,4] {pad=[2,2,2,2], expand=\"\", "
    "depthwise=\"\", project=\"mask\"}; "
    "f32[9,2,2,30], f32[1,1,30,64], f32[64], f32[3,3,1,64], f32[1,1,64,128] {pad=[1,1,1,1], expand=\"bias+relu6\", "
    "depthwise=\"relu6\", project=\"\"}; "
    "f32[3,13,11,3], f32[3,3,3,32], f32[32], f32[3,3,1,32], f32[32], f32[1,1,32,16], f32[16] {expand_stride=[2,2], "
    "expand_pad=[1,1,1,1], pad=[1,1,1,1], expand=\"bias+relu6\", depthwise=\"bias+relu6\", project=\"bias\"}; "
    "f32[2,10,9,2], f32[2,4,2,70], f32[3,3,1,70], f32[70], f32[1,1,70,24] {expand_pad=[0,2,1,0], stride=[2,2], "
    "expand=\"relu\", depthwise=\"bias\", project=\"relu6\"}; "
    "f32[2,90,100,1], f32[3,3,1,20], f32[3,3,1,20], f32[1,1,20,24] {expand_pad=[1,1,1,1], pad=[1,1,1,1], "
    "expand=\"relu\", depthwise=\"\", project=\"\"}; "
    "f32[1,1,1,5], f32[1,1,5,6], f32[3,3,1,6], f32[1,1,6,7] {stride=[2,2], pad=[1,1,1,1], expand=\"\", "
    "depthwise=\"\", project=\"\"}";

}  // namespace

OpList conv_chain() {
  static constexpr OpDef defs[] = {{.name = "conv_chain",
                                    .signature = "(x: float, weights and epilogue operands by stage: float...) -> y",
                                    .type = type,
                                    .cost = cost,
                                    .reference = reference,
                                    .magnitude = magnitude,
                                    .expand = expand,
                                    .examples = kExamples,
                                    .fused = true}};
  return defs;
}
}  // namespace situ::ops::defs
