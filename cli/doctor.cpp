// doctor.cpp -- `situ doctor`: one bundle for a bug report or a first run on a new device.
//
// Each part is written as soon as it is there, and the log says what was begun: if a driver takes the process down, the
// folder stays, and the next run takes its log along. Every text goes through `without` (base/personal.h).
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "backend/cpu/simd_info.h"
#include "backend/opencl/device.h"
#include "backend/opencl/devices.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/personal.h"
#include "base/system.h"
#include "base/version.h"
#include "cli/lessons.h"
#include "cli/verbs.h"
#include "data/dataset.h"
#include "device/study.h"
#include "io/archive.h"
#include "step/roofline.h"
#include "step/self_test.h"
#include "step/trial.h"
#include "train/trainer.h"

namespace situ::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::string_view kEnd = "the end";

struct Options {
  std::string out = "situ-doctor.tar.gz", device;
  bool quick = false;
};

bool is_archive(const std::string& out) { return out.ends_with(".tar.gz") || out.ends_with(".tgz"); }

// The folder that fills up, and what has been put there.
class Bundle {
 public:
  Bundle(std::string folder, Personal personal) : folder_(std::move(folder)), personal_(std::move(personal)) {
    make_folders(folder_);
    std::error_code ignored;
    if (!fs::exists(folder_ + "/log.txt", ignored)) return;
    const std::string before = read_file(folder_ + "/log.txt", 16 << 20);
    if (before.find(kEnd) != std::string::npos) return;
    put("log-before.txt", "the log of an earlier run that did not reach its end", before);
    say("an earlier run ended before its time; its log is log-before.txt");
  }

  void put(const std::string& name, const std::string& what, const std::string& text) {
    make_folders(fs::path(folder_ + "/" + name).parent_path().string());
    write_file_atomic(folder_ + "/" + name, without(personal_, text));
    parts_.push_back({name, what});
  }

  // One part; what goes wrong in it is written down, and the others go on.
  template <typename Make>
  void part(const std::string& name, const std::string& what, const Make& make) {
    say(fmt::format("{}: {}", name, what));
    const double begin = now();
    try {
      put(name, what, make());
      note(fmt::format("{}: {:.1f} s", name, now() - begin));
    } catch (const std::exception& e) {
      say(fmt::format("{}: failed: {}", name, e.what()));
    }
    if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\x1b[K");
  }

  void say(const std::string& line) {  // to people and to the log
    fmt::print("{}\n", line);
    std::fflush(stdout);
    note(line);
  }
  void note(const std::string& line) {
    log_ += line + "\n";
    write_file_atomic(folder_ + "/log.txt", without(personal_, log_));
  }

  std::string contents() const {
    std::string text;
    for (const auto& [name, what] : parts_) text += fmt::format("  {:<26} {}\n", name, what);
    return text + fmt::format("  {:<26} {}\n", "log.txt", "what was done, and what went wrong");
  }
  io::NamedFiles files() const {
    io::NamedFiles files;
    for (const auto& [name, what] : parts_) files.emplace_back("situ-doctor/" + name, read_file(folder_ + "/" + name));
    files.emplace_back("situ-doctor/log.txt", read_file(folder_ + "/log.txt"));
    return files;
  }

 private:
  std::string folder_, log_;
  Personal personal_;
  std::vector<std::pair<std::string, std::string>> parts_;
};

void live(const std::string& text) {
  if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\x1b[K  {}", text);
}

// --- parts ----------------------------------------------------------------------------------------------------------
std::string system_json() {
  ordered_json j = {{"situ", kVersion}};
  for (const auto& [name, value] : describe_system()) j[name] = value;
  j["instruction sets"] = fmt::format("{}", fmt::join(cpu::simd_sets(), " "));
  for (const char* name : {"SITU_LIMITS", "SITU_SIMD"})
    if (const char* value = std::getenv(name)) j[name] = value;
  return j.dump(1);
}

ordered_json info_json(const opencl::DeviceInfo& d) {
  return {{"name", d.name},
          {"platform", d.platform},
          {"platform version", d.platform_version},
          {"version", d.version},
          {"driver", d.driver},
          {"type", opencl::name_of(d.type)},
          {"compute units", d.compute_units},
          {"clock MHz", d.clock_mhz},
          {"memory", d.memory},
          {"largest allocation", d.max_alloc},
          {"alignment", d.alignment},
          {"largest group", d.max_group},
          {"largest group by axis", d.max_items},
          {"command buffers", d.command_buffer},
          {"recordable queues", d.recordable_queue},
          {"fp16", d.fp16},
          {"sub-groups", d.subgroups},
          {"images", d.images},
          {"image line", d.image_limits.line},
          {"image width", d.image_limits.width},
          {"image height", d.image_limits.height},
          {"image pitch", d.image_limits.pitch},
          {"priority hints", d.priority_hints},
          {"throttle hints", d.throttle_hints},
          {"extensions", d.extensions}};
}

std::string self_test_json(device::Device& device) {
  ordered_json j = {{"device", device.target().name}, {"driver", device.target().driver}};
  int64_t wrong = 0;
  for (const step::OpResult& r :
       step::self_test(device, [](size_t done, size_t total) { live(fmt::format("kernels {}/{}", done, total)); })) {
    j["ops"][r.op] = r.ok ? "ok" : r.detail;
    wrong += !r.ok;
  }
  j["wrong"] = wrong;
  step::load_left_out(device);
  for (const auto& [unit, reason] : device.left_out) j["left out"][unit] = reason;
  for (const std::string& note : opencl::notes_of(device)) j["notes"].push_back(note);
  return j.dump(1);
}

std::string tuning_json(const device::Device& device) {
  ordered_json j = {{"device", device.target().name}};
  for (const auto& [key, value] : device.target().tuning.values()) j["tuning"][key] = value;
  for (const auto& [node, candidate] : device.choices) j["measured choices"][node] = candidate;
  return j.dump(1);
}

std::string roofline_json(device::Device& device, bool quick) {
  step::RooflineOptions how;
  if (quick) how.seconds = 0.2, how.largest = int64_t{4} << 20;
  how.progress = [](int turn, int turns) { live(fmt::format("measuring {}/{}", turn, turns)); };
  return device::to_json(step::measure_roofline(device, how));
}

// A small training on made-up images: that it learns, and where its steps' time goes.
std::string training_json(device::Device& device) {
  data::DatasetPair data = data::load_dataset("synthetic:28x28x1:10:1280");
  train::Settings settings;
  settings.epochs = 1;
  settings.batch = 32;
  settings.optimizer = model::default_optimizer(model::Optimizer::sgd);
  train::Trainer trainer(device, data, settings);
  const train::Score before = trainer.evaluate(data.test);
  trainer.fit([](const train::Progress& p) { live(fmt::format("step {}/{}", p.step, p.steps)); });
  const train::Score after = trainer.evaluate(data.test);
  prof::Measured m = prof::measure(trainer.step_session(), trainer.step_program(), {.seconds = 0.5});
  m.model = settings.model;
  m.residency = "resident";
  ordered_json j = ordered_json::parse(prof::to_json(m));
  j["test loss before"] = before.loss;
  j["test loss after"] = after.loss;
  return j.dump(1);
}

std::string lessons_part(const std::string& device) {
  LessonRun run;
  run.device = device;
  run.tune = 1;
  run.how.seconds = 0.5;
  for (const auto& m : device::study::models()) run.how.models.emplace_back(m.spec);
  run.progress = [](const prof::LessonProgress& p) {
    live(fmt::format("{} {}/{}  {}", p.model, p.done, p.total, p.what));
  };
  return prof::lessons_json(take_lessons(run));
}

void examine(Bundle& bundle, const std::string& spec, const std::string& folder, bool quick) {
  std::unique_ptr<device::Device> device;
  bundle.part(folder + "/tuning.json", "tuning in use on " + spec, [&] {
    DeviceChoice choice;
    choice.device = spec;
    device = choice.open();
    return tuning_json(*device);
  });
  if (!device) return;
  bundle.part(folder + "/self_test.json", "every kernel against the oracle", [&] { return self_test_json(*device); });
  bundle.part(folder + "/roofline.json", "what the device does at best", [&] { return roofline_json(*device, quick); });
  bundle.part(folder + "/ledger.json", "a small training and where its time goes",
              [&] { return training_json(*device); });
}

std::string date() {
  const std::time_t seconds = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&seconds));
  return text;
}

void run(const Options& o) {
  if (o.out.ends_with(".zip")) fail("`{}`: the bundle is a .tar.gz or a folder; choose such a name", o.out);
  const bool archive = is_archive(o.out);
  const std::string folder = archive ? o.out + ".parts" : o.out;
  Bundle bundle(folder, personal_data({{cache_folder(), "CACHE"}, {folder, "OUT"}, {o.out, "OUT"}}));
  bundle.say(fmt::format("situ {} looks at this machine, {}", kVersion, date()));
  bundle.part("system.json", "the machine", [] { return system_json(); });
  std::vector<opencl::DeviceInfo> found;
  bundle.part("devices.json", "OpenCL devices and their limits", [&] {
    found = opencl::list_devices();
    ordered_json j = ordered_json::array();
    for (const opencl::DeviceInfo& d : found) j.push_back(info_json(d));
    return j.dump(1);
  });
  if (o.device.empty() || o.device == "cpu") examine(bundle, "cpu", "cpu", o.quick);
  if (o.device.starts_with("opencl")) examine(bundle, o.device, "opencl", o.quick);
  for (size_t i = 0; i < found.size() && o.device.empty(); ++i)
    examine(bundle, "opencl:" + found[i].name, fmt::format("opencl-{}", i), o.quick);
  if (!o.quick && !found.empty() && o.device != "cpu")
    bundle.part("lessons.json", "where a step's time goes, stage by stage (situ lessons)",
                [&] { return lessons_part(o.device.empty() ? "opencl" : o.device); });
  bundle.put("README.txt", "this list",
             fmt::format("situ doctor, {}\n\n{}\nNames of users and hosts, paths of home, cache and output folders are "
                         "taken out; serial numbers were never read.\n",
                         date(), bundle.contents()));
  bundle.note(std::string(kEnd));
  if (archive) {
    write_file_atomic(o.out, io::tar_gz(bundle.files()));
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  fmt::print(
      "\n{} holds\n{}No names, host names, paths or serial numbers are in it. To send it: attach it to an issue.\n",
      o.out, bundle.contents());
}

}  // namespace

void add_doctor(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("doctor", "one bundle for a bug report or a first run on a new device");
  verb->add_option("--out", o->out, "a .tar.gz, or a folder")->capture_default_str();
  verb->add_option("--device", o->device, "only cpu, opencl or opencl:PART-OF-A-NAME; default: all");
  verb->add_flag("--quick", o->quick, "a shorter roofline, no lessons");
  verb->callback([o] { run(*o); });
}

}  // namespace situ::cli
