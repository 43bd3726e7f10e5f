// products.cpp -- matrix products and one convolution on the CPU, launch by launch, beside OpenBLAS's where the machine
// has it. Prints one JSON object: GFLOP/s of the best of many runs, contenders taking turns, on all cores.
//
// "packed": b is a frozen state, so that its panels are made beforehand; "packing": b is new in every step. A
// convolution's weights are new in every step, too, those of the one that is tried with epilogues are packed. What
// counts is the time of the launches.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "ir/text.h"
#include "step/devices.h"
#include "step/session.h"

namespace situ::bench {
namespace {

using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);

Sgemm find_sgemm() {
  void* library = dlopen("libopenblas.so.0", RTLD_NOW);
  return library ? reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm")) : nullptr;
}

// A program of one op, run by a device; seconds of its launches.
class Program {
 public:
  Program(device::Device& device, const std::string& text) : session_(device, {ir::parse("program p\n" + text)}, {}) {
    for (const ir::State& state : session_.states())
      if (!state.attrs.flag("derived")) session_.set(state.name, std::vector<float>(state.type.count(), 0.5f));
    for (int i = 0; i < 3; ++i) run();
  }
  double run() {
    step::Batch& batch = session_.next_batch();
    if (filled_++ < 4)  // every feed once; what the CPU's hold stays there
      for (const step::Field& field : session_.compiled().memory.inputs())
        std::ranges::fill(batch.f32(field.name), 0.25f);
    session_.device().start_profile();
    session_.run(0, batch);
    session_.device().finish();
    double seconds = 0;
    for (const device::Event& event : session_.device().stop_profile().events)
      if (event.kind == device::EventKind::kernel) seconds += event.end - event.start;
    return seconds;
  }

 private:
  step::Session session_;
  int filled_ = 0;
};

struct Contender {
  std::string name;
  double flops;
  std::function<double()> run;
  double best = 1e300;
  double rate() const { return 1e-9 * flops / best; }
};

// Each for a moment, many times; a pause in between lets the others' threads fall asleep.
void take_turns(std::vector<Contender>& contenders) {
  for (int round = 0; round < 12; ++round)
    for (Contender& c : contenders) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      for (const double start = now(); now() - start < 0.05;) c.best = std::min(c.best, c.run());
    }
}

std::string rates(const std::vector<Contender>& contenders) {
  std::string text;
  for (const Contender& c : contenders) text += fmt::format(", \"{}\": {:.1f}", c.name, c.rate());
  return text;
}

std::string product(device::Device& device, Sgemm sgemm, int64_t n) {
  const std::string type = fmt::format("f32[{0},{0}]", n),
                    end = "%2 = matmul(%0, %1) : " + type + "\noutput(%2) {name=\"y\"}\n",
                    a = "%0 = input {name=\"a\"} : " + type + "\n";
  Program packed(device, "state b : " + type + "\n" + a + "%1 = read {state=\"b\"} : " + type + "\n" + end);
  Program packing(device, a + "%1 = input {name=\"b\"} : " + type + "\n" + end);
  const double flops = 2.0 * static_cast<double>(n * n * n);
  std::vector<Contender> contenders{{"packed", flops, [&] { return packed.run(); }},
                                    {"packing", flops, [&] { return packing.run(); }}};
  std::vector<float> x(static_cast<size_t>(n * n), 0.25f), y = x, z = x;
  const int side = static_cast<int>(n);
  if (sgemm)
    contenders.push_back({"openblas", flops, [&] {
                            const double start = now();
                            sgemm(101, 111, 111, side, side, side, 1, x.data(), side, y.data(), side, 0, z.data(),
                                  side);
                            return now() - start;
                          }});
  take_turns(contenders);
  return fmt::format("{{\"size\": {}{}}}", n, rates(contenders));
}

// 3 x 3, 64 to 64 channels, 56 x 56, batch 4: forward, and the gradients of data and weights.
std::string convolution(device::Device& device) {
  const std::string image = "f32[4,56,56,64]", weights = "f32[3,3,64,64]";
  const auto text = [&](const std::string& op, const std::string& a, const std::string& b, const std::string& y,
                        const std::string& attrs) {
    return fmt::format(
        "%0 = input {{name=\"a\"}} : {}\n%1 = input {{name=\"b\"}} : {}\n"
        "%2 = {}(%0, %1) {{{}pad=[1,1,1,1]}} : {}\noutput(%2) {{name=\"y\"}}\n",
        a, b, op, attrs, y);
  };
  Program forward(device, text("conv2d", image, weights, image, ""));
  Program data(device, text("conv2d_dx", image, weights, image, "size=[56,56], "));
  Program of_weights(device, text("conv2d_dw", image, image, weights, "kernel=[3,3], "));
  const double flops = 2.0 * 4 * 56 * 56 * 64 * 64 * 9;
  std::vector<Contender> contenders{{"forward", flops, [&] { return forward.run(); }},
                                    {"data", flops, [&] { return data.run(); }},
                                    {"weights", flops, [&] { return of_weights.run(); }}};
  take_turns(contenders);
  return rates(contenders).substr(2);
}

// 1 x 1, 16 to 96 channels, 48 x 48: so few terms that an epilogue would show.
std::string epilogues(device::Device& device) {
  const std::string image = "f32[1,48,48,96]";
  struct Kind {
    std::string name, words, operand;
  };
  const Kind kinds[] = {{"none", "", ""},
                        {"bias", "bias", "f32[96]"},
                        {"bias_relu6", "bias+relu6", "f32[96]"},
                        {"residual", "residual", image},
                        {"mask", "mask", image}};
  std::vector<std::unique_ptr<Program>> programs;
  std::vector<Contender> contenders;
  for (const Kind& kind : kinds) {
    std::string text =
        "state b : f32[1,1,16,96]\n%0 = input {name=\"a\"} : f32[1,48,48,16]\n"
        "%1 = read {state=\"b\"} : f32[1,1,16,96]\n";
    if (kind.words.empty())
      text += fmt::format("%2 = conv2d(%0, %1) : {}\noutput(%2) {{name=\"y\"}}\n", image);
    else
      text += fmt::format(
          "%2 = input {{name=\"c\"}} : {}\n%3 = conv2d(%0, %1, %2) {{epilogue=\"{}\"}} : {}\noutput(%3) "
          "{{name=\"y\"}}\n",
          kind.operand, kind.words, image);
    programs.push_back(std::make_unique<Program>(device, text));
    contenders.push_back({kind.name, 2.0 * 48 * 48 * 16 * 96, [p = programs.back().get()] { return p->run(); }});
  }
  take_turns(contenders);
  return rates(contenders).substr(2);
}

}  // namespace
}  // namespace situ::bench

int main() {
  const auto device = situ::step::open_device("cpu");
  const auto sgemm = situ::bench::find_sgemm();
  std::string products;
  for (int64_t n : {128, 256, 512, 1024})
    products += (products.empty() ? "" : ",\n  ") + situ::bench::product(*device, sgemm, n);
  fmt::print("{{\"device\": \"{}\", \"products\": [\n  {}],\n \"conv3x3\": {{{}}},\n \"epilogues\": {{{}}}}}\n",
             device->target().name, products, situ::bench::convolution(*device), situ::bench::epilogues(*device));
  return 0;
}
