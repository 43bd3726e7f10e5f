// lessons.h -- taking the lessons of prof/lessons.h with devices opened as the command does; `lessons` and `doctor`
// share it.
#pragma once
#include <string>

#include "prof/lessons.h"

namespace situ::cli {

struct LessonRun {
  std::string device = "opencl";  // beside the CPU
  int threads = 0;
  double tune = 10;  // seconds to measure candidates, for each model on each device
  prof::LessonOptions how;
  std::function<void(const prof::LessonProgress&)> progress = nullptr;
};
prof::Lessons take_lessons(const LessonRun& run);

}  // namespace situ::cli
