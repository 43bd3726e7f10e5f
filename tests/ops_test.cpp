// ops_test.cpp -- what every op owes (signature, types, reference, examples, magnitude, text form), in loops over all
// of them: a new op brings its own examples and needs no line here.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "ir/text.h"
#include "ir/verify.h"
#include "ops/epilogue.h"
#include "ops/expr.h"
#include "ops/window.h"
#include "oracle.h"

namespace situ {
namespace {

using oracle::Single;
using oracle::Tensor;
using oracle::Tensors;

template <typename Check>
void for_all_examples(Check check) {
  for (const ops::OpDef* op : ops::all_ops())
    for (const ops::Example& example : ops::examples(*op)) {
      SCOPED_TRACE(fmt::format("{}({})", op->name, example.text));
      check(*op, example, oracle::single(*op, example));
    }
}

// --- all ops ---

TEST(Ops, AreComplete) {
  std::set<std::string_view> names;
  for (const ops::OpDef* op : ops::all_ops()) {
    SCOPED_TRACE(op->name);
    EXPECT_TRUE(names.insert(op->name).second) << "defined twice";
    EXPECT_EQ(op->signature.substr(0, 1), "(");
    EXPECT_NE(op->signature.find(") -> "), std::string_view::npos);
    EXPECT_TRUE(op->type && op->reference);
    EXPECT_GE(ops::examples(*op).size(), 1u);
  }
  EXPECT_GE(names.size(), 50u);
}

TEST(Ops, ExamplesTypeCheckAndGiveFiniteResults) {
  for_all_examples([](const ops::OpDef&, const ops::Example&, const Single& s) {
    EXPECT_FALSE(s.op().outputs.empty());
    for (const Tensor& t : oracle::run(s.view(), s.inputs))
      for (double v : t) ASSERT_TRUE(std::isfinite(v));
  });
}

TEST(Ops, ExamplesAreRepresentableAndWhatTheyPromise) {
  for_all_examples([](const ops::OpDef&, const ops::Example& example, const Single& s) {
    for (size_t i = 0; i < s.inputs.size(); ++i)
      for (double v : s.inputs[i]) {
        ASSERT_EQ(v, static_cast<double>(static_cast<float>(v)));
        const ops::ExampleInput& input = example.inputs[i];
        if (input.kind == ops::ExampleInput::signed_unit && input.type.dtype == DType::f32) {
          ASSERT_GE(std::fabs(v), 0.0499 * input.bound);
          ASSERT_LE(std::fabs(v), input.bound);
        }
        if (input.kind == ops::ExampleInput::integer) {
          ASSERT_TRUE(v == std::floor(v) && v >= 0 && v < input.bound);
        }
        if (input.kind == ops::ExampleInput::positive) {
          ASSERT_TRUE(v >= 0.5 && v < 1.5);
        }
      }
  });
}

TEST(Ops, MagnitudeBoundsTheReference) {
  for_all_examples([](const ops::OpDef&, const ops::Example&, const Single& s) {
    const Tensors results = oracle::run(s.view(), s.inputs), bounds = oracle::magnitudes(s.view(), s.inputs);
    for (size_t o = 0; o < results.size(); ++o)
      for (size_t i = 0; i < results[o].size(); ++i)
        ASSERT_LE(std::fabs(results[o][i]), bounds[o][i] * (1 + 1e-9)) << "result " << o << " element " << i;
  });
}

// The operands rounded a little: all but what is exact by nature.
Tensors rounded(const ops::Example& example, Tensors inputs, double by) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto kind = example.inputs[i].kind;
    if (kind == ops::ExampleInput::integer || kind == ops::ExampleInput::fixed) continue;
    for (size_t e = 0; e < inputs[i].size(); ++e) inputs[i][e] *= 1 + by * (e % 3 == 0 ? 1 : -1);
  }
  return inputs;
}

// An honest tolerance: rounding the operands moves no result by more than a few roundings of its magnitude, and moves
// some result by a part of it worth naming (less than one: in a long sum errors of either sign cancel).
TEST(Ops, MagnitudeIsTheScaleOfRoundingErrors) {
  constexpr double kRounding = 0x1p-20;
  for_all_examples([](const ops::OpDef&, const ops::Example& example, const Single& s) {
    const Tensors exact = oracle::run(s.view(), s.inputs), bounds = oracle::magnitudes(s.view(), s.inputs);
    const Tensors moved = oracle::run(s.view(), rounded(example, s.inputs, kRounding));
    double most = 0;
    for (size_t o = 0; o < exact.size(); ++o)
      for (size_t i = 0; i < exact[o].size(); ++i) {
        const double error = std::fabs(exact[o][i] - moved[o][i]);
        ASSERT_LE(error, 4 * kRounding * bounds[o][i] + 1e-15) << "result " << o << " element " << i;
        if (bounds[o][i] > 0) most = std::max(most, error / (kRounding * bounds[o][i]));
      }
    EXPECT_TRUE(exact == moved || most > 0.001) << most;
  });
}

TEST(Ops, TextFormRoundTrips) {
  for_all_examples([](const ops::OpDef&, const ops::Example&, const Single& s) {
    ir::verify(s.graph);
    const std::string text = ir::print(s.graph);
    const ir::Graph parsed = ir::parse(text);
    EXPECT_EQ(ir::print(parsed), text);
    const ir::Node& node = parsed.nodes.at(static_cast<size_t>(s.node));
    EXPECT_EQ(node.attrs, s.op().attrs);
    EXPECT_EQ(ops::get(node.op).type({node.op, s.view().ins, {}, node.attrs}), s.view().outs);
  });
}

TEST(Ops, CostsAreFiniteAndViewsAreFree) {
  for_all_examples([](const ops::OpDef& op, const ops::Example&, const Single& s) {
    const ops::Cost cost = ops::cost_of(s.view());
    EXPECT_TRUE(std::isfinite(cost.flops) && cost.flops >= 0);
    EXPECT_TRUE(op.view ? cost.bytes == 0 && cost.flops == 0 : cost.bytes > 0);
  });
}

TEST(Ops, AliasesNameOperandsOfTheSameType) {
  for_all_examples([](const ops::OpDef& op, const ops::Example&, const Single& s) {
    if (!op.aliases) return;
    const ops::OpView view = s.view();
    for (const auto& [out, in] : op.aliases(view))
      EXPECT_EQ(view.outs.at(static_cast<size_t>(out)), view.ins.at(static_cast<size_t>(in)));
  });
}

TEST(Ops, PointwiseOpsAgreeWithTheirScalar) {
  for_all_examples([](const ops::OpDef& op, const ops::Example&, const Single& s) {
    if (!op.scalar) return;
    const ops::OpView view = s.view();
    const ir::Attrs fused{{"expr", ops::print(ops::expr_of(op.name, {}, view.arity()))},
                          {"shape", view.out(0).shape.dims()}};
    EXPECT_EQ(oracle::run({"fused", view.ins, view.outs, fused}, s.inputs), oracle::run(view, s.inputs));
  });
}

// --- mistakes ---

TEST(Ops, TypeRulesRejectWithASentence) {
  const struct {
    const char *op, *operands, *sentence;
  } cases[] = {
      {"matmul", "f32[2,3], f32[4,5]", "inner sizes 3 and 4 differ"},
      {"matmul", "f32[2,3], f32[3]", "two axes"},
      {"matmul", "f32[2,3], f32[3,4], f32[5] {epilogue=\"bias\"}", "must be f32[4], not f32[5]"},
      {"matmul", "f32[2,3], f32[3,4] {epilogue=\"residual\"}", "needs an operand"},
      {"matmul", "f32[2,3], f32[3,4], f32[4] {epilogue=\"relu\"}", "3 operands"},
      {"matmul", "f32[2,3], f32[3,4] {epilogue=\"gelu\"}", "`gelu` is no epilogue"},
      {"conv2d", "f32[1,5,5,4], f32[3,3,3,8]", "3 input channels"},
      {"conv2d", "f32[1,2,2,4], f32[3,3,4,8]", "smaller kernel or more padding"},
      {"conv2d", "f32[1,5,5,4], f32[3,3,2,9] {groups=2}", "common divisor"},
      {"conv2d", "f32[1,5,5,4], f32[3,3,4,8] {stride=[0,1]}", "`stride` holds 0"},
      {"conv2d", "f32[1,5,5,4], f32[3,3,4,8] {pad=[1,1]}", "`pad` needs 4 numbers"},
      {"conv2d_dx", "f32[1,3,3,8], f32[3,3,4,8] {size=[6,5]}", "dy must be [1,4,3,8]"},
      {"conv2d_dx", "f32[1,3,3,8], f32[3,3,4,8]", "attribute `size` is missing"},
      {"conv2d_dw", "f32[1,5,5,4], f32[1,3,3,8] {kernel=[2,3]}", "dy must be [1,4,3,8]"},
      {"bias", "f32[2,3], f32[2]", "b must be [3]"},
      {"add", "f32[2,3], f32[2]", "do not broadcast"},
      {"add", "f32[2,3]", "2 operands are needed, not 1"},
      {"relu", "i32[3]", "must be f32"},
      {"fused", "f32[3] {expr=\"t0 = frob(i0)\", shape=[3]}", "there is no op `frob`"},
      {"fused", "f32[3] {expr=\"t0 = add(i0, t1)\", shape=[3]}", "used before it is defined"},
      {"fused", "f32[3] {expr=\"t0 = add(i0)\", shape=[3]}", "2 operands are needed"},
      {"fused", "f32[3] {expr=\"t0 = softmax(i0)\", shape=[3]}", "not pointwise"},
      {"fused", "f32[3] {expr=\"t0 = relu(i0)\", shape=[4]}", "does not broadcast"},
      {"fused", "f32[3] {expr=\"t0 = relu(i1)\", shape=[3]}", "uses 2 inputs"},
      {"reduce", "f32[3] {kind=\"sum\", axes=[1]}", "axis 1 does not exist"},
      {"reduce", "f32[3,4] {kind=\"sum\", axes=[1,-1]}", "stands twice"},
      {"reduce", "f32[3] {kind=\"prod\", axes=[0]}", "use sum, mean or max"},
      {"max_pool", "f32[1,4,4,1] {kernel=[2,2], pad=[2,0,0,0]}", "smaller than the kernel"},
      {"softmax_xent", "f32[4,10], f32[4], f32[4], f32[]", "labels must be i32[4]"},
      {"softmax_xent", "f32[4,10], i32[4], f32[3], f32[]", "weight must be f32[4]"},
      {"metrics", "f32[3], f32[5], f32[5], f32[5], f32[]", "totals must be f32[4]"},
      {"concat", "f32[2,3], f32[3,3] {axis=1}", "must equal the first but for axis 1"},
      {"split", "f32[2,3] {axis=1, sizes=[1,1]}", "add up to 2"},
      {"reshape", "f32[2,3] {shape=[5]}", "the products must agree"},
      {"transpose", "f32[2,3] {perm=[0,0]}", "each axis of x once"},
      {"one_hot", "f32[4] {classes=3}", "ids must be i32"},
      {"gather_grad", "i32[4], f32[3,5] {rows=7}", "dy must be [4,5]"},
      {"dropout", "f32[4], i32[], i32[], i32[] {p=1, stream=0}", "less than 1"},
      {"sgd", "f32[], f32[3], f32[4]", "must be f32[3] as the parameter is"},
      {"sgd", "f32[], f32[3], f32[3] {momentum=0.9}", "3 operands for each parameter"},
      {"sgd", "f32[], f32[3], f32[3] {nesterov=1}", "nesterov needs a momentum"},
      {"adam", "f32[], f32[], f32[3], f32[3], f32[3] {beta1=0.9, beta2=0.999, eps=1.0e-8}",
       "4 operands for each parameter"},
      {"adam", "f32[], f32[], f32[3], f32[3], f32[3], f32[3] {beta1=0.9, eps=1.0e-8}", "attribute `beta2` is missing"},
      {"rmsprop", "f32[], f32[3], f32[3], f32[3] {alpha=1, eps=1.0e-8}", "alpha is 1: use at least 0 and less than 1"},
      {"rmsprop", "f32[], f32[3], f32[3], f32[3] {alpha=0.9, eps=1.0e-8, centered=1}", "4 operands for each parameter"},
      {"adagrad", "f32[], f32[], f32[3], f32[3], f32[3] {eps=0}", "eps must be larger than 0"},
      {"lion", "f32[], f32[], f32[3], f32[3], f32[3] {beta1=0.9, beta2=0.99}", "3 operands for each parameter"},
      {"ema", "f32[3], f32[3] {decay=1}", "decay is 1"},
      {"sgd", "f32[], f32[3], f32[3] {clipped=1}", "the clipping factor must be f32[]"},
      {"square_sum", "i32[3]", "all operands must be f32"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(fmt::format("{}({})", c.op, c.operands));
    try {
      oracle::single(ops::get(c.op), oracle::examples_from(c.op, c.operands).at(0));
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::user);
      EXPECT_NE(std::string(e.what()).find(c.sentence), std::string::npos) << e.what();
    }
  }
}

TEST(Ops, UnknownNameSuggestsTheNearest) {
  EXPECT_THROW(ops::get("conv2"), Error);
  try {
    ops::get("sofmax");
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("`softmax`"), std::string::npos);
  }
}

// --- small languages and geometry ---

TEST(Expr, RoundTrips) {
  const std::string text = "t0 = add(i0, i1); t1 = relu(t0); t2 = mul(t1, 0x1p-1)";
  const ops::Expr expr = ops::parse_expr(text);
  EXPECT_EQ(ops::print(expr), text);
  EXPECT_EQ(expr.inputs, 2);
  EXPECT_EQ(ops::print(ops::parse_expr("t0=select( i0 ,-1, 2.5 )")), "t0 = select(i0, -0x1p+0, 0x1.4p+1)");
  EXPECT_EQ(ops::print(ops::expr_of("sub", {}, 2)), "t0 = sub(i0, i1)");
  EXPECT_THROW(ops::parse_expr(""), Error);
  EXPECT_THROW(ops::parse_expr("t1 = relu(i0)"), Error);
  EXPECT_THROW(ops::parse_expr("t0 = relu(i0) t1 = relu(t0)"), Error);
}

TEST(Window, TapsAndOutputsAreInverse) {
  for (int64_t stride : {1, 2, 3})
    for (int64_t dilation : {1, 2, 4})
      for (int64_t before : {0, 1, 5})
        for (int64_t kernel : {1, 2, 3}) {
          const ops::Attrs attrs{{"stride", ops::Ints{stride, 1}},
                                 {"dilation", ops::Ints{dilation, 1}},
                                 {"pad", ops::Ints{before, 0, 6, 0}}};
          const ops::WindowAxis w = ops::window_of(attrs, {7, 1}, {kernel, 1}).y;
          for (int64_t o = 0; o < w.out; ++o)
            for (int64_t k = 0; k < w.kernel; ++k) {
              const int64_t i = w.position(o, k);
              const bool inside = i >= 0 && i < w.in;
              EXPECT_EQ(inside, k >= w.taps_inside(o).begin && k < w.taps_inside(o).end);
              EXPECT_TRUE(!inside || w.output_at(i, k) == o);
            }
          for (int64_t i = 0; i < w.in; ++i)
            for (int64_t k = 0; k < w.kernel; ++k)
              EXPECT_TRUE(w.output_at(i, k) < w.out &&
                          (w.output_at(i, k) < 0 || w.position(w.output_at(i, k), k) == i));
        }
}

}  // namespace
}  // namespace situ
