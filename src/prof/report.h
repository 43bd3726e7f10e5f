// report.h -- a program's ledger, measured: what it costs by plan, what the device counted, where the time went.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "step/ledger.h"
#include "step/session.h"

namespace situ::prof {

struct Measured {
  std::string model, device, residency;
  int64_t batch = 0;
  step::Ledger ledger;       // per step, predicted
  device::Counters counted;  // per step, counted while running
  int64_t steps = 0;
  double median_seconds = 0, best_seconds = 0;  // of a step, without profiling
  double processor_seconds = 0;                 // that all threads of the process ran for a step, at best
  // From profiled runs, which took turns with plain ones.
  step::TimeSplit split;                                              // per step of the fastest
  std::vector<double> launch_seconds;                                 // per launch, median over the steps of all
  std::vector<double> launch_best;                                    // and the shortest
  int64_t profiled_steps = 0;                                         // in each
  double plain_seconds = 0;                                           // of a step in the fastest plain run
  double begin = 0;                                                   // of the timeline, on the host's clock
  device::Timeline timeline;                                          // of the fastest; not kept in files
  double overhead() const { return split.wall / plain_seconds - 1; }  // of profiling
  struct Outside {
    int64_t steps = 0;
    double wall = 0;     // seconds of that many steps, without profiling
    double kernels = 0;  // seconds in which at least one kernel ran, in as many steps with profiling
    double share() const { return 1 - kernels / wall; }
  };
  std::optional<Outside> outside;
  int64_t peak_bytes = 0;         // of the process, above its state before the model was built; 0: not measured
  int64_t programs = 0;           // distinct ones that the driver compiles for the session; 0: kernels came with situ
  double first_step_seconds = 0;  // from the start of the command to the end of its first step; 0: not measured
};

// Runs `program` for about `seconds` without profiling, then for as long or less with it. The session's states go on
// changing.
struct MeasureOptions {
  double seconds = 1;
  int64_t min_steps = 20, warmup = 5;
  int classes = 2;              // labels and tokens are drawn from 0 .. classes - 1
  bool profiled = true;         // false: `split` and `launch_seconds` stay empty
  double block_seconds = 0.02;  // of steps ended by one finish: short ones find a quiet moment on a busy machine
  int64_t outside_steps = 0;    // measure `outside` over this many; 0: not at all
};
Measured measure(step::Session& session, int program, const MeasureOptions& options);
// One step on made-up data, from its upload to its end: what a cold start waits for.
void run_one_step(step::Session& session, int program, int classes);

std::string to_json(const Measured& m);  // ledger.json: everything, for `situ ledger`
Measured from_json(const std::string& text, const std::string& origin);
std::string bench_line(const Measured& m);                       // one JSON object on a line; its names are stable
std::string side_by_side(const std::vector<Measured>& columns);  // a table for people
std::string launch_table(const Measured& m);                     // every launch: kernel, time, GFLOP/s, GB/s

}  // namespace situ::prof
