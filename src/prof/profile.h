// profile.h -- one step taken apart: its time by cause, by launch and by layer, against the device's measured roofline,
// and its memory over the step. What `situ profile` prints, writes as JSON, as a trace and as a page.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "device/roofline.h"
#include "prof/memory_map.h"
#include "prof/report.h"

namespace situ::prof {

// What keeps a launch from being faster.
enum class Bound {
  arithmetic,  // the peak
  memory,      // bandwidth at its working set
  launch,      // it is over sooner than a launch is queued
};
std::string_view name_of(Bound bound);

struct LaunchRow {
  int index = 0;  // in the ledger's list
  double seconds = 0;
  double roof = 0;  // the least it could take
  Bound bound = Bound::memory;
  double reached() const { return seconds > 0 ? roof / seconds : 0; }  // above 1: arithmetic that Winograd saves
};

struct LayerRow {
  std::string layer;
  int launches = 0;
  double forward = 0, backward = 0;  // seconds
  double flops = 0, bytes = 0, roof = 0;
  double seconds() const { return forward + backward; }
};

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // step, loss
};

struct Profile {
  Measured measured;
  device::Roofline roofline;
  std::vector<LaunchRow> launches;  // in order
  std::vector<LayerRow> layers;     // in the order they first run
  std::vector<int> costliest;       // launches, up to five
  MemoryMap memory;
  std::vector<Curve> losses;
  bool halves = false;  // activations are stored as half
  bool tuned = false;   // some choices of kernels were measured
};

Profile profile(step::Session& session, int program, const MeasureOptions& options, const device::Roofline& roofline);

// The loss of some steps on made-up data, at a learning rate of 0.01: it shows that the step learns, no more. Empty if
// the program keeps no metrics.
Curve loss_curve(step::Session& session, int program, int classes);

// What bounds a launch and what to try, as a sentence each.
std::string advice(const Profile& profile, const LaunchRow& launch);
// About the step as a whole: causes other than kernels that cost more than a tenth.
std::vector<std::string> advice(const Profile& profile);

std::string text_of(const Profile& profile, bool all_launches);  // tables for people
std::string report_json(const Profile& profile);                 // {"profile": ..}: what the page draws
std::string trace_json(const Profile& profile);                  // Chrome's trace events, also Perfetto's

// The page with its data inside: one file that needs no network. Each part of the data that a script of page/ knows is
// drawn; `json` is an object whose keys are those parts.
std::string report_page(const std::string& title, const std::string& json);

}  // namespace situ::prof
