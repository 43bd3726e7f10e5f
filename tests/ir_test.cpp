// ir_test.cpp -- the graph's text form, its rules, and what breaks them.
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/dead_code.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "model/model.h"
#include "step/programs.h"

namespace situ::ir {
namespace {

const char* kText = R"(program train
state w : f32[3,2] {bound=0x1.8p-1, init="uniform"}
%0 = input {name="x"} : f32[4,3]
%1 = read {state="w"} : f32[3,2]
%2 = matmul(%0, %1) {ta=0} : f32[4,2]
%3, %4 = split(%2) {axis=1, sizes=[1,1]} : f32[4,1], f32[4,1]
%5 = const {value=-0x1p-1} : f32[3,2]
write(%5) {state="w"}
output(%3) {name="left"}
)";

TEST(Text, PrintsWhatItParses) { EXPECT_EQ(print(parse(kText)), kText); }

TEST(Text, EveryProgramOfEveryModelRoundTrips) {
  for (const char* name : {"lenet5", "mlp:784-256-128-16", "squeezenet1.1@32"}) {
    const model::Model model = model::find_model(name);
    for (const char* program : {"train", "micro", "apply", "evaluate", "infer"}) {
      const Graph graph = step::program_by_name({model, 3, {}}, program);
      verify(graph);
      EXPECT_EQ(print(parse(print(graph))), print(graph)) << name << " " << program;
    }
  }
}

TEST(Text, ErrorsNameTheLine) {
  for (const char* bad : {"program p\n%0 = relu(%7) : f32[1]", "program p\n%0 = input {name=\"x} : f32[1]",
                          "program p\n%0 = input : f64[1]", "program p\n%0, %1 = input : f32[1]", "program p\n%0 input",
                          "program p\nstate s f32[1]", "program p\n%0 = input : f32[0]"}) {
    try {
      parse(bad);
      FAIL() << bad;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("line 2"), std::string::npos) << e.what();
    }
  }
}

void expect_broken(const std::string& text) {
  const Graph graph = parse(text);
  EXPECT_THROW(verify(graph), Error) << text;
}

TEST(Verify, AcceptsAGoodGraph) { EXPECT_NO_THROW(verify(parse(kText))); }

TEST(Verify, OneWritePerStateAndAfterAllReads) {
  expect_broken("state s : f32[2]\n%0 = read {state=\"s\"} : f32[2]\nwrite(%0) {state=\"s\"}\nwrite(%0) {state=\"s\"}");
  expect_broken(
      "state s : f32[2]\n%0 = input {name=\"x\"} : f32[2]\nwrite(%0) {state=\"s\"}\n%1 = read {state=\"s\"} : f32[2]");
}

TEST(Verify, StatesAreDeclaredAndTyped) {
  expect_broken("%0 = read {state=\"s\"} : f32[2]");
  expect_broken("state s : f32[3]\n%0 = read {state=\"s\"} : f32[2]");
  expect_broken("state s : f32[3]\n%0 = input {name=\"x\"} : f32[2]\nwrite(%0) {state=\"s\"}");
}

TEST(Verify, NamesAreUnique) {
  expect_broken("%0 = input {name=\"x\"} : f32[2]\noutput(%0) {name=\"y\"}\noutput(%0) {name=\"y\"}");
  expect_broken("%0 = input {name=\"x\"} : f32[2]\n%1 = input {name=\"x\"} : f32[3]");
  expect_broken("%0 = control {name=\"lr\"} : f32[2]");
}

TEST(Verify, DefinitionsComeBeforeUses) {
  Graph graph = parse(kText);
  std::swap(graph.nodes[0], graph.nodes[2]);
  EXPECT_THROW(verify(graph), Error);
}

TEST(DeadCode, KeepsWhatWritesAndOutputsNeed) {
  const Graph graph =
      dead_code(parse("program p\n%0 = input {name=\"x\"} : f32[2]\n%1 = relu(%0) : f32[2]\n%2 = exp(%1) : "
                      "f32[2]\noutput(%1) {name=\"y\"}\n"));
  EXPECT_EQ(print(graph),
            "program p\n%0 = input {name=\"x\"} : f32[2]\n%1 = relu(%0) : f32[2]\noutput(%1) {name=\"y\"}\n");
}

}  // namespace
}  // namespace situ::ir
