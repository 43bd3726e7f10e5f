// lessons.h -- the study reproduced and undone, cause by cause: one training step in stages, each with one cause less.
//
// naive: every operand of every launch is copied in and out, the host waits after each (the study's finding)
// better kernels: the same with register tiles (what the study tried)
// weights: parameters stay on the device
// resident: everything stays; one submission without a wait, one launch per op, plain kernels
// fused: fewer launches
// tuned: register tiles and the candidates measured to be the fastest
// fp16: activations and their gradients stored as half (OpenCL)
//
// Plain kernels are the first way a back end lists for an op that takes any operands, on OpenCL with a tile of one
// vector (devices/plain.json).
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prof/report.h"

namespace situ::prof {

enum class Kernels { plain, tiled, tuned };

struct Stage {
  std::string_view name, what;
  step::Residency residency = step::Residency::resident;
  bool fuse = false;
  Kernels kernels = Kernels::plain;
  bool half = false;
};
std::span<const Stage> lesson_stages();

struct Entry {
  std::string stage;
  bool opencl = false;
  Measured m;
  double lost() const;  // share of a step's time that is movement, launch and wait
};
struct Lesson {
  std::string model;
  int64_t batch = 0;
  std::vector<Entry> entries;
  const Entry* find(std::string_view stage, bool opencl) const;
};
struct Lessons {
  std::string cpu, opencl, driver;
  std::vector<Lesson> list;
};

struct LessonProgress {
  std::string model;
  size_t done = 0, total = 0;  // of what is to be compiled and measured for this model
  std::string what;
};
// The devices a run uses; `half` may be missing. `tune` measures the fastest candidates of a program's nodes.
struct Lab {
  device::Device *cpu = nullptr, *plain = nullptr, *tiled = nullptr, *half = nullptr;
  std::function<device::Choices(device::Device&, const ir::Graph&)> tune;
  std::function<void(const LessonProgress&)> progress;
};
struct LessonOptions {
  std::vector<std::string> models;
  int64_t batch = 32;
  double seconds = 1;  // for each stage on each device, in rounds
  int rounds = 10;     // what takes much longer than `seconds` has fewer, but two
};
// CPU and OpenCL and all stages of a model take turns, in rounds; the best block of steps counts.
Lessons take_lessons(const Lab& lab, const LessonOptions& options);

// For every node of the program (already rewritten) that can run in several ways, the first listed that takes any
// operands; else the first listed.
device::Choices plain_choices(const device::Device& device, const ir::Graph& rewritten);

std::string lessons_text(const Lessons& lessons);      // tables for a terminal
std::string lessons_markdown(const Lessons& lessons);  // the same for docs/lessons.md
std::string lessons_json(const Lessons& lessons);

}  // namespace situ::prof
