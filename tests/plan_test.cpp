// plan_test.cpp -- views, state writes, order, in-place results, placement; and that the checker sees every mistake.
#include "plan/plan.h"

#include <gtest/gtest.h>

#include "backend/ref/device.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "step/memory.h"
#include "step/run.h"

namespace situ::plan {
namespace {

struct Planned {
  ir::Graph graph;
  Plan plan;
};

device::Target target() {
  device::Target t;
  t.name = "fake";
  return t;
}

Planned planned(const std::string& text, const device::Target& on = target()) {
  ir::Graph graph = ir::parse("program p\n" + text);
  ir::verify(graph);
  for (auto stage : {materialise_views, settle_writes, order, in_place}) graph = stage(graph);
  ir::verify(graph);
  step::MemoryMap memory({graph}, on);
  Plan plan = place(graph, on, memory);
  check(graph, plan, on);
  return {graph, plan};
}

int copies(const ir::Graph& graph) {
  int count = 0;
  for (const ir::Node& node : graph.nodes) count += node.op == "copy";
  return count;
}

ir::Value result_of(const ir::Graph& graph, const std::string& op) {
  for (const ir::Node& node : graph.nodes)
    if (node.op == op) return node.outputs[0];
  return ir::kNoValue;
}

const std::string kX = "%0 = input {name=\"x\"} : f32[4,3]\n";

TEST(Views, ConcatOperandsAreProducedInPlace) {
  const auto [graph, plan] = planned(kX +
                                     "%1 = relu(%0) : f32[4,3]\n%2 = exp(%0) : f32[4,3]\n%3 = concat(%1, %2) {axis=1} "
                                     ": f32[4,6]\noutput(%3) {name=\"y\"}\n");
  EXPECT_EQ(copies(graph), 0);
  const Placement left = plan.of[static_cast<size_t>(result_of(graph, "relu"))],
                  right = plan.of[static_cast<size_t>(result_of(graph, "exp"))];
  EXPECT_EQ(left.pitch, 6);
  EXPECT_EQ(right.pitch, 6);
  EXPECT_EQ(right.offset - left.offset, 12);
}

TEST(Views, AValueInTwoConcatsIsCopiedOnce) {
  EXPECT_EQ(copies(planned(kX + "%1 = relu(%0) : f32[4,3]\n%2 = exp(%0) : f32[4,3]\n%3 = concat(%1, %2) {axis=1} : "
                                "f32[4,6]\n%4 = concat(%2, %2) {axis=1} : f32[4,6]\n"
                                "output(%3) {name=\"y\"}\noutput(%4) {name=\"z\"}\n")
                       .graph),
            2);
}

TEST(Views, InputsAreCopiedIntoAConcat) {
  EXPECT_EQ(
      copies(
          planned(kX + "%1 = relu(%0) : f32[4,3]\n%2 = concat(%0, %1) {axis=0} : f32[8,3]\noutput(%2) {name=\"y\"}\n")
              .graph),
      1);
}

TEST(Views, SplitNeedsNoCopyAndReshapeOfASliceDoes) {
  const std::string split =
      kX + "%1, %2 = split(%0) {axis=1, sizes=[1,2]} : f32[4,1], f32[4,2]\n%3 = relu(%2) : f32[4,2]\n";
  EXPECT_EQ(copies(planned(split + "output(%3) {name=\"y\"}\n").graph), 0);
  EXPECT_EQ(
      copies(planned(split + "%4 = reshape(%2) {shape=[8]} : f32[8]\n%5 = relu(%4) : f32[8]\noutput(%5) {name=\"y\"}\n")
                 .graph),
      1);
  EXPECT_EQ(
      copies(planned(
                 split +
                 "%4 = reshape(%2) {shape=[2,2,2]} : f32[2,2,2]\n%5 = relu(%4) : f32[2,2,2]\noutput(%5) {name=\"y\"}\n")
                 .graph),
      0)
      << "the last axis stays, so the pitch does too";
}

TEST(Views, RowsOfASliceStartAtTheirOwnRow) {
  const ir::Graph graph = ir::parse(
      "program p\n" + kX +
      "%1, %2 = split(%0) {axis=1, sizes=[1,2]} : f32[4,1], f32[4,2]\n%3, %4 = split(%2) {axis=0, sizes=[1,3]} : "
      "f32[1,2], f32[3,2]\n%5 = relu(%4) : f32[3,2]\noutput(%5) {name=\"y\"}\n");
  const auto device = ref::make_device();
  EXPECT_EQ(step::run_once(*device, graph, {{"x", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}}).at("y"),
            (std::vector<double>{4, 5, 7, 8, 10, 11}));
}

const std::string kStates = "state a : f32[4,3]\nstate b : f32[4,3]\n";
const std::string kReads = "%0 = read {state=\"a\"} : f32[4,3]\n%1 = read {state=\"b\"} : f32[4,3]\n";

TEST(States, AnUpdateIsProducedInTheStatesMemory) {
  const auto [graph, plan] =
      planned(kStates + kReads + "%2 = add(%0, %1) {may_alias=[0,0]} : f32[4,3]\nwrite(%2) {state=\"a\"}\n");
  EXPECT_EQ(copies(graph), 0);
  EXPECT_EQ(plan.of[2].slab, plan.of[0].slab);
  EXPECT_EQ(plan.of[2].offset, plan.of[0].offset);
}

TEST(States, AProducerThatMayNotOverwriteIsFollowedByACopy) {
  EXPECT_EQ(copies(planned(kStates + kReads + "%2 = add(%0, %1) : f32[4,3]\nwrite(%2) {state=\"a\"}\n").graph), 1);
}

TEST(States, ReadersComeBeforeTheOverwrite) {
  const auto [graph, plan] = planned(kStates + kReads +
                                     "%2 = add(%0, %1) {may_alias=[0,0]} : f32[4,3]\n%3 = exp(%0) : "
                                     "f32[4,3]\nwrite(%2) {state=\"a\"}\noutput(%3) {name=\"y\"}\n");
  EXPECT_LT(graph.values[static_cast<size_t>(result_of(graph, "exp"))].producer,
            graph.values[static_cast<size_t>(result_of(graph, "add"))].producer);
}

TEST(States, ReadersThroughAReshapeComeBeforeTheOverwriteToo) {
  const auto [graph, plan] =
      planned(kStates + kReads +
              "%2 = add(%0, %1) {may_alias=[0,0]} : f32[4,3]\n%3 = reshape(%0) {shape=[12]} : f32[12]\n%4 = exp(%3) : "
              "f32[12]\nwrite(%2) {state=\"a\"}\noutput(%4) {name=\"y\"}\n");
  EXPECT_LT(graph.values[static_cast<size_t>(result_of(graph, "exp"))].producer,
            graph.values[static_cast<size_t>(result_of(graph, "add"))].producer);
}

TEST(States, AValueOfTwoStatesIsCopiedIntoOne) {
  EXPECT_EQ(copies(planned(kStates + kReads +
                           "%2 = mul(%0, %1) {may_alias=[0,0,0,1]} : f32[4,3]\nwrite(%2) {state=\"a\"}\nwrite(%2) "
                           "{state=\"b\"}\n")
                       .graph),
            1);
}

TEST(States, ASwapWorks) {
  const std::string text =
      "program p\n" + kStates + kReads +
      "%2 = neg(%1) : f32[4,3]\n%3 = neg(%0) : f32[4,3]\nwrite(%2) {state=\"a\"}\nwrite(%3) {state=\"b\"}\n";
  planned(text.substr(text.find('\n') + 1));
  const auto device = ref::make_device();
  step::Session session(*device, {ir::parse(text)});
  session.set("a", std::vector<float>(12, 1));
  session.set("b", std::vector<float>(12, 2));
  session.run(0, session.next_batch());
  EXPECT_EQ(session.get("a"), std::vector<float>(12, -2));
  EXPECT_EQ(session.get("b"), std::vector<float>(12, -1));
}

TEST(InPlace, AChainUsesOneTensor) {
  const auto [graph, plan] = planned(kX +
                                     "%1 = exp(%0) : f32[4,3]\n%2 = relu(%1) {may_alias=[0,0]} : f32[4,3]\n%3 = "
                                     "tanh(%2) {may_alias=[0,0]} : f32[4,3]\noutput(%3) {name=\"y\"}\n");
  EXPECT_EQ(plan.of[1].offset, plan.of[3].offset);
  EXPECT_EQ(plan.arena_bytes(), device::kZeroRun + 48);
}

TEST(InPlace, AnOperandReadLaterIsKept) {
  const auto [graph, plan] = planned(kX +
                                     "%1 = exp(%0) : f32[4,3]\n%2 = relu(%1) {may_alias=[0,0]} : f32[4,3]\n%3 = "
                                     "add(%1, %2) : f32[4,3]\noutput(%3) {name=\"y\"}\n");
  EXPECT_NE(plan.of[1].offset, plan.of[2].offset);
}

TEST(InPlace, OutputsAndInputsAreNotOverwritten) {
  const auto [graph, plan] = planned(kX +
                                     "%1 = exp(%0) {may_alias=[0,0]} : f32[4,3]\n%2 = relu(%1) {may_alias=[0,0]} : "
                                     "f32[4,3]\noutput(%1) {name=\"y\"}\noutput(%2) {name=\"z\"}\n");
  EXPECT_NE(plan.of[0].offset, plan.of[1].offset);
  EXPECT_NE(plan.of[1].offset, plan.of[2].offset);
}

TEST(InPlace, ASliceIsNotTakenOver) {
  const auto [graph, plan] =
      planned(kX +
              "%1 = exp(%0) : f32[4,3]\n%2, %3 = split(%1) {axis=0, sizes=[2,2]} : f32[2,3], f32[2,3]\n"
              "%4 = relu(%3) {may_alias=[0,0]} : f32[2,3]\n%5 = add(%2, %4) : f32[2,3]\noutput(%5) {name=\"y\"}\n");
  EXPECT_FALSE(graph.producer(result_of(graph, "relu")).attrs.has("alias"));
}

TEST(InPlace, ColumnsOfADyingTensorAreNotTakenOver) {
  const auto [graph, plan] =
      planned(kX +
              "%1 = exp(%0) : f32[4,3]\n%2, %3 = split(%1) {axis=1, sizes=[1,2]} : f32[4,1], f32[4,2]\n"
              "%4 = relu(%3) {may_alias=[0,0]} : f32[4,2]\noutput(%4) {name=\"y\"}\n");
  EXPECT_FALSE(graph.producer(result_of(graph, "relu")).attrs.has("alias"));
}

TEST(InPlace, AnOperandOfAConcatHasItsPlaceAlready) {
  const auto [graph, plan] =
      planned(kX +
              "%1 = exp(%0) : f32[4,3]\n%2 = relu(%1) {may_alias=[0,0]} : f32[4,3]\n%3 = tanh(%0) : "
              "f32[4,3]\n%4 = concat(%2, %3) {axis=1} : f32[4,6]\noutput(%4) {name=\"y\"}\n");
  EXPECT_FALSE(graph.producer(result_of(graph, "relu")).attrs.has("alias"));
}

TEST(InPlace, AnOperandReadTwiceIsKeptUnlessBothMayGo) {
  const std::string head = kX + "%1 = exp(%0) : f32[4,3]\n%2 = mix(%1, %1) ",
                    tail = " : f32[4,3]\noutput(%2) {name=\"y\"}\n";
  const auto kept = planned(head + "{may_alias=[0,0]}" + tail), taken = planned(head + "{may_alias=[0,0,0,1]}" + tail);
  EXPECT_NE(kept.plan.of[1].offset, kept.plan.of[2].offset);
  EXPECT_EQ(taken.plan.of[1].offset, taken.plan.of[2].offset);
}

TEST(InPlace, OneOperandIsTakenOnce) {
  const auto [graph, plan] =
      planned(kX +
              "%1 = exp(%0) : f32[4,3]\n%2, %3 = both(%1) {may_alias=[0,0,1,0]} : f32[4,3], f32[4,3]\n"
              "%4 = add(%2, %3) : f32[4,3]\noutput(%4) {name=\"y\"}\n");
  EXPECT_NE(plan.of[2].offset, plan.of[3].offset);
}

TEST(Place, DeadTensorsGiveTheirMemoryBack) {
  std::string text = "%0 = input {name=\"x\"} : f32[1024]\n";
  for (int i = 1; i <= 20; ++i) text += fmt::format("%{} = exp(%{}) : f32[1024]\n", i, i - 1);
  const auto p = planned(text + "output(%20) {name=\"y\"}\n");
  EXPECT_EQ(p.plan.arena_bytes(), device::kZeroRun + 2 * 4096);
}

TEST(Place, SlabsOpenWhereTheLargestAllocationDemands) {
  device::Target small = target();
  small.max_slab = device::kZeroRun + 5000;
  std::string text =
      "%0 = input {name=\"x\"} : f32[1024]\n%1 = exp(%0) : f32[1024]\n%2 = relu(%0) : f32[1024]\n%3 = add(%1, %2) : "
      "f32[1024]\noutput(%3) {name=\"y\"}\n";
  const auto p = planned(text, small);
  EXPECT_EQ(p.plan.arena_slabs.size(), 3u);
  small.max_slab = device::kZeroRun + 4000;
  EXPECT_THROW(planned(text, small), Error);
}

// The checker: break a good plan in every way there is, and it must say so.
class Broken : public testing::Test {
 protected:
  Planned good =
      planned(kStates + kReads +
              "%2 = input {name=\"x\"} : f32[4,3]\n%3 = exp(%2) : f32[4,3]\n%4 = relu(%0) : f32[4,3]\n%5 = add(%3, %4) "
              ": f32[4,3]\n"
              "%6 = add(%0, %5) {may_alias=[0,0]} : f32[4,3]\nwrite(%6) {state=\"a\"}\noutput(%5) {name=\"y\"}\n");
  void expect_caught() { EXPECT_THROW(check(good.graph, good.plan, target()), Error); }
};

TEST_F(Broken, TheGoodPlanPasses) { EXPECT_NO_THROW(check(good.graph, good.plan, target())); }
TEST_F(Broken, TwoLiveTensorsOverlap) {
  good.plan.of[4] = good.plan.of[3];
  expect_caught();
}
TEST_F(Broken, TwoLiveTensorsOverlapByOneElement) {
  good.plan.of[4] = good.plan.of[3];
  good.plan.of[4].offset += 44;
  expect_caught();
}
TEST_F(Broken, AnOutputIsOverwritten) {
  good.plan.of[6] = good.plan.of[5];
  expect_caught();
}
TEST_F(Broken, AResultOverlapsAnOperandItMayNotAlias) {
  good.plan.of[5] = good.plan.of[3];
  expect_caught();
}
TEST_F(Broken, ATensorInTheZeroRun) {
  good.plan.of[3].offset = 0;
  expect_caught();
}
TEST_F(Broken, AStateIsOverwrittenBeforeItsLastReader) {
  ir::Graph late = ir::parse(
      "program p\n" + kStates + kReads +
      "%2 = neg(%1) : f32[4,3]\n%3 = relu(%0) : f32[4,3]\nwrite(%2) {state=\"a\"}\noutput(%3) {name=\"y\"}\n");
  step::MemoryMap memory({late}, target());
  const Plan plan = place(late, target(), memory);
  EXPECT_THROW(check(late, plan, target()), Error);
}

TEST(Checker, AnOutputMustLastToTheEnd) {
  Planned p = planned(kX +
                      "%1 = exp(%0) : f32[4,3]\noutput(%1) {name=\"y\"}\n%2 = relu(%0) : f32[4,3]\noutput(%2) "
                      "{name=\"z\"}\n");
  p.graph = ir::parse("program p\n" + kX +
                      "%1 = exp(%0) : f32[4,3]\noutput(%1) {name=\"y\"}\n%2 = relu(%0) : f32[4,3]\noutput(%2) "
                      "{name=\"z\"}\n");
  EXPECT_NO_THROW(check(p.graph, p.plan, target()));
  p.plan.of[2] = p.plan.of[1];
  EXPECT_THROW(check(p.graph, p.plan, target()), Error);
}

TEST(Hoist, WhatDependsOnUnwrittenStatesMovesToPrepare) {
  const Hoisted h = hoist(ir::parse(
      "program p\n" + kStates + kReads +
      "%2 = exp(%0) : f32[4,3]\n%3 = exp(%1) : f32[4,3]\n%4 = add(%2, %3) : f32[4,3]\nwrite(%4) {state=\"a\"}\n"));
  EXPECT_EQ(ir::print(h.program).find("= exp(%1)"), std::string::npos) << "b is not written: its exp moves";
  EXPECT_NE(ir::print(h.prepare).find("exp"), std::string::npos);
  EXPECT_NE(ir::print(h.program).find("exp"), std::string::npos) << "a is written: its exp stays";
}

TEST(Hoist, AStateThatIsMarkedAsChangingCountsAsWritten) {
  ir::Graph graph = ir::parse("program p\n" + kStates + kReads +
                              "%2 = exp(%0) : f32[4,3]\n%3 = exp(%1) : f32[4,3]\n%4 = add(%2, %3) : f32[4,3]\n"
                              "write(%4) {state=\"a\"}\n");
  EXPECT_EQ(steady_values(graph), (std::vector<bool>{false, true, false, true, false}));
  for (ir::State& state : graph.states)
    if (state.name == "b") state.attrs.set("changing", int64_t{1});
  EXPECT_TRUE(hoist(graph).prepare.nodes.empty());
  EXPECT_EQ(steady_values(graph), std::vector<bool>(5, false));
}

}  // namespace
}  // namespace situ::plan
