// cli_test.cpp -- the command as people use it: train, eval, predict, bench; and every mistake gets one clear sentence.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness.h"

#ifdef SITU_TEST_COMMAND
namespace situ::test {
namespace {

namespace fs = std::filesystem;

struct Result {
  int code = 0;
  std::string text;  // both streams
};

Result situ(const std::string& arguments, const std::string& environment = "") {
  const std::string command = environment + " " SITU_TEST_COMMAND " " + arguments + " 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  Result result;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) result.text.append(buffer, n);
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string folder(const std::string& name) {
  const fs::path path = fs::path(scratch_folder()) / name;
  fs::create_directories(path);
  return path.string();
}

void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string big_endian(uint32_t v) {
  return {static_cast<char>(v >> 24), static_cast<char>(v >> 16), static_cast<char>(v >> 8), static_cast<char>(v)};
}

// An MNIST-like folder of `count` black images of 28 x 28 with the given label.
std::string mnist(const std::string& name, uint32_t count, char label) {
  const std::string path = folder(name);
  const std::string images =
      big_endian(0x803) + big_endian(count) + big_endian(28) + big_endian(28) + std::string(count * 784, '\0');
  const std::string labels = big_endian(0x801) + big_endian(count) + std::string(count, label);
  for (const char* part : {"train", "t10k"}) {
    write(path + "/" + part + "-images-idx3-ubyte", images);
    write(path + "/" + part + "-labels-idx1-ubyte", labels);
  }
  return path;
}

const std::string kTiny = "train mlp:64-16-4 --data synthetic:8x8x1:4:640 --batch 48 --epochs 2 --lr 0.1 --seed 3 ";

TEST(Command, TrainsAndEvaluatesOnAnyDevice) {
  const std::string out = folder("tiny");
  const Result trained = situ(kTiny + "--device cpu --out " + out);
  ASSERT_EQ(trained.code, 0) << trained.text;
  EXPECT_NE(trained.text.find("over 160 samples"), std::string::npos) << trained.text;
  const std::string accuracy = trained.text.substr(trained.text.find("test accuracy "), 20);
  for (const char* device : {"cpu", "ref"}) {
    const Result evaluated = situ("eval " + out + "/model.safetensors --batch 7 --device " + device);
    EXPECT_EQ(evaluated.code, 0) << evaluated.text;
    EXPECT_NE(evaluated.text.find(accuracy), std::string::npos) << evaluated.text << accuracy;
    EXPECT_NE(evaluated.text.find("over 160 samples"), std::string::npos) << evaluated.text;
    EXPECT_NE(situ("eval " + out + "/model.safetensors --details --device " + device).text.find("macro"),
              std::string::npos);
  }
  const Result ledger = situ("ledger " + out + " --launches");
  EXPECT_EQ(ledger.code, 0) << ledger.text;
  EXPECT_NE(ledger.text.find("host waits"), std::string::npos);
}

TEST(Command, SameSeedSameBitsWhateverTheThreads) {
  for (const char* threads : {"1", "2", "3"})
    ASSERT_EQ(
        situ(kTiny + "--device cpu --threads " + threads + " --out " + folder(std::string("threads") + threads)).code,
        0);
  const std::string one = read(folder("threads1") + "/model.safetensors");
  EXPECT_FALSE(one.empty());
  EXPECT_EQ(one, read(folder("threads2") + "/model.safetensors"));
  EXPECT_EQ(one, read(folder("threads3") + "/model.safetensors"));
}

TEST(Command, AccumulatesGradients) {
  const Result trained = situ(kTiny + "--accumulate 3 --device cpu --out " + folder("accumulate"));
  EXPECT_EQ(trained.code, 0) << trained.text;
}

TEST(Command, TrainsThePartBehindCachedFeatures) {
  const Result trained =
      situ(kTiny + "--train last --cache-features --ema 0.5 --class-weights balanced --out " + folder("cached"));
  EXPECT_EQ(trained.code, 0) << trained.text;
  EXPECT_NE(trained.text.find("over 160 samples"), std::string::npos) << trained.text;
  const Result grown = situ("train mlp:64-16-5 --data synthetic:8x8x1:4:640 --epochs 1 --from " + folder("cached") +
                            "/model.safetensors --add-class fifth --class-weights balanced --out " + folder("grown"));
  EXPECT_EQ(grown.code, 0) << grown.text;
  EXPECT_NE(situ(kTiny + "--cache-features").text.find("no frozen part"), std::string::npos);
  EXPECT_NE(situ(kTiny + "--class-weights 1,x").text.find("no class weight"), std::string::npos);
  EXPECT_NE(situ(kTiny + "--loss mse").text.find("choose cross-entropy"), std::string::npos);
}

// One JSON line for every line with a number of seconds.
TEST(Command, BenchServesMeasurements) {
  const Result served = situ("bench mlp:20-10-5 --batch 8 --device cpu --serve < " + [] {
    const std::string path = folder("serve") + "/seconds";
    write(path, "0\n0.02\n");
    return path;
  }());
  EXPECT_EQ(served.code, 0) << served.text;
  EXPECT_EQ(std::count(served.text.begin(), served.text.end(), '{'), 2) << served.text;
}

TEST(Command, LessonsSetTheStudyBeside) {
  if (!device_under_test("opencl")) GTEST_SKIP() << "left out by SITU_TEST_DEVICES";
  const std::string out = folder("lessons") + "/figures.json";
  const Result r = situ("lessons --quick --models M1 --markdown --out " + out);
  ASSERT_EQ(r.code, 0) << r.text;
  for (const char* part : {"### M1: mlp:16-16, batch 32", "| naive |", "| resident |", "| fp16 |", "Adreno 650"})
    EXPECT_NE(r.text.find(part), std::string::npos) << part << r.text;
  const auto stages = nlohmann::json::parse(read(out))["models"][0]["stages"];
  EXPECT_EQ(stages["resident"]["opencl"]["waits"], 0);
  EXPECT_EQ(stages["resident"]["opencl"]["launches"], stages["naive"]["opencl"]["launches"]);
  EXPECT_FALSE(stages["fp16"].contains("cpu"));
  EXPECT_NE(situ("lessons --models nonsense").text.find("nonsense"), std::string::npos);
}

TEST(Command, PredictsImageFiles) {
  const std::string out = folder("predict");
  ASSERT_EQ(situ("train lenet5 --data " + mnist("zeros", 70, 3) + " --epochs 1 --device cpu --out " + out).code, 0);
  write(out + "/black.pgm", "P5\n28 28\n255\n" + std::string(784, '\0'));
  const Result r = situ("predict " + out + "/model.safetensors " + out + "/black.pgm --top 1 --device cpu");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_NE(r.text.find("class 3"), std::string::npos) << r.text;
}

TEST(Command, BenchPrintsOneJsonObjectWithTheAgreedNames) {
  for (const char* residency : {"resident", "weights", "naive"}) {
    const Result r =
        situ(std::string("bench mlp:20-10-5 --batch 8 --device cpu --seconds 0.05 --json --residency ") + residency);
    ASSERT_EQ(r.code, 0) << r.text;
    const auto j = nlohmann::json::parse(r.text);
    for (const char* name : {"model",    "device",    "batch",    "residency", "ms",       "best_ms",   "steps",
                             "peak_mib", "arena_mib", "launches", "waits",     "bytes_in", "bytes_out", "gflop",
                             "compute",  "movement",  "launch",   "wait",      "idle",     "programs",  "first_step_s"})
      EXPECT_TRUE(j.contains(name)) << name;
    EXPECT_EQ(j["residency"], residency);
    EXPECT_EQ(j["waits"] == 0, std::string(residency) == "resident");
    EXPECT_EQ(j["programs"], 0) << "the CPU's kernels came with situ";
    EXPECT_GT(j["first_step_s"], 0);
  }
}

TEST(Command, ProfileWritesTablesJsonATraceAndAPage) {
  const std::string out = folder("profile"), cache = "SITU_CACHE=" + out + "/cache";
  const std::string profile = "profile mlp:20-10-5 --batch 8 --threads 1 --seconds 0 ";
  EXPECT_NE(situ("devices --quick", cache).text.find("not measured yet"), std::string::npos);
  const Result text =
      situ(profile + "--launches --trace " + out + "/trace.json --report " + out + "/report.html", cache);
  ASSERT_EQ(text.code, 0) << text.text;
  EXPECT_NE(text.text.find("the costliest launches"), std::string::npos) << text.text;
  EXPECT_NE(text.text.find("report.html"), std::string::npos) << text.text;
  EXPECT_FALSE(nlohmann::json::parse(read(out + "/trace.json"))["traceEvents"].empty());
  EXPECT_NE(read(out + "/report.html").find("\"made-up data\""), std::string::npos);

  ASSERT_EQ(situ(kTiny + "--device cpu --out " + out).code, 0);
  const Result json = situ(profile + "--json --run " + out, cache);
  ASSERT_EQ(json.code, 0) << json.text;
  const auto j = nlohmann::json::parse(json.text)["profile"];
  EXPECT_EQ(j["model"], "mlp:20-10-5");
  EXPECT_FALSE(j["launches"].empty());
  ASSERT_EQ(j["losses"].size(), 2u);
  EXPECT_EQ(j["losses"][1]["points"].size(), 2u) << "the test loss after each of two epochs";
  EXPECT_EQ(j["losses"][1]["points"][1][0], 2 * 14) << "640 images in batches of 48 make an epoch";
  EXPECT_NE(situ(profile + "--json --run " + out + "/nowhere", cache).text.find("history.json"), std::string::npos);
}

// A part of the wall is spent in kernels and a part is not, as far as a busy machine can tell.
TEST(Command, BenchMeasuresTheTimeOutsideKernels) {
  const std::string bench = "bench mlp:64-128-128-5 --batch 32 --device cpu --threads 1 --seconds 0.01 ";
  const Result r = situ(bench + "--outside --json");
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_LT(nlohmann::json::parse(r.text)["outside"], 1);
  EXPECT_FALSE(nlohmann::json::parse(situ(bench + "--json").text).contains("outside"));
  const std::string text = situ(bench + "--outside").text;
  double percent = 0, kernels = 0, wall = 0;
  const size_t line = text.find("outside kernels: ");
  ASSERT_NE(line, std::string::npos) << text;
  ASSERT_EQ(
      std::sscanf(text.c_str() + line,
                  "outside kernels: %lf%% (kernels ran for %lf ms of profiled steps, 100 plain steps took %lf ms)",
                  &percent, &kernels, &wall),
      3)
      << text;
  EXPECT_GT(kernels, 0);
  EXPECT_NEAR(percent, 100 * (1 - kernels / wall), 0.06 + (1 + kernels / wall) / wall) << "up to the printed digits";
}

TEST(Command, BenchCountsTheProgramsThatTheDriverCompiles) {
  if (!device_under_test("opencl")) GTEST_SKIP() << "opencl is left out by SITU_TEST_DEVICES";
  const std::string cache = folder("programs");
  const Result r = situ("bench mlp:20-10-5 --batch 8 --device opencl --seconds 0.01 --json", "SITU_CACHE=" + cache);
  ASSERT_EQ(r.code, 0) << r.text;
  int64_t files = 0;
  for (const auto& entry : fs::directory_iterator(cache)) files += entry.path().extension() == ".clbin";
  EXPECT_GT(files, 0);
  EXPECT_GE(nlohmann::json::parse(r.text)["programs"], files) << "the self-test compiles nothing of its own";
}

TEST(Command, DumpsEveryStage) {
  for (const char* stage : {"model",
                            "dead_code",
                            "common_subexpressions",
                            "constant_folding",
                            "transpose_folding",
                            "epilogue_fusion",
                            "pointwise_fusion",
                            "gradient_order",
                            "update_grouping",
                            "gradient_rows",
                            "norm_fusion",
                            "gradient_factors",
                            "conv_chains",
                            "lower",
                            "hoist",
                            "launch_groups",
                            "views",
                            "settle",
                            "order",
                            "in_place",
                            "place"}) {
    const Result r = situ(std::string("dump lenet5 --device cpu --after ") + stage);
    EXPECT_EQ(r.code, 0) << r.text;
    EXPECT_NE(r.text.find("program train"), std::string::npos) << stage;
  }
  EXPECT_EQ(situ("dump lenet5 --device cpu --after nothing").code, 1);
}

// One sentence on one line, the words expected in it, an exit code that is not 0, and no crash.
void expect_sentence(const std::string& arguments, const std::vector<std::string>& words,
                     const std::string& environment = "") {
  const Result r = situ(arguments, environment);
  EXPECT_TRUE(r.code != 0 && r.code < 128) << arguments << " -> " << r.code << "\n" << r.text;
  EXPECT_EQ(std::count(r.text.begin(), r.text.end(), '\n'), 1) << r.text;
  for (const std::string& word : words) EXPECT_NE(r.text.find(word), std::string::npos) << r.text << " lacks: " << word;
}

TEST(Mistakes, InModelsAndShapes) {
  expect_sentence("train resnet9000", {"resnet9000", "did you mean", "situ model"});
  expect_sentence("train mlp:10", {"mlp:784-256-10"});
  expect_sentence("train mlp:10-x-2", {"layer width"});
  expect_sentence("train mlp:784-10 --data synthetic:32x32x3", {"[784]", "[32,32,3]"});
  expect_sentence("train resnet20@x", {"resolution"});
  expect_sentence("train gpt-mini --data synthetic:8x8x1", {"i32[128]", "[8,8,1]"});
  expect_sentence("train lenet5 --train 'fc9.*'", {"fc9.*", "fc3.*"});
  expect_sentence("train mlp:784-4", {"4 classes", "10"});
  expect_sentence("train lenet5 --lr 0", {"learning rate"});
  expect_sentence("train lenet5 --optimizer sdg", {"sdg", "adamw"});
  expect_sentence("train lenet5 --schedule cos", {"cosine"});
  expect_sentence("train lenet5 --residency remote", {"naive"});
  expect_sentence("bench mlp:1000000-1000000-10 --device cpu", {"MiB", "smaller"});
}

TEST(Mistakes, InData) {
  expect_sentence("train lenet5 --data nowhere", {"nowhere"});
  const std::string good = mnist("good", 3, 1);
  write(good + "/train-images-idx3-ubyte", read(good + "/train-images-idx3-ubyte").substr(0, 100));
  expect_sentence("train lenet5 --data " + good, {"train-images"});
  expect_sentence("train lenet5 --data " + mnist("label", 3, 11), {"11"});
  const std::string gz = mnist("gz", 3, 1);
  fs::remove(gz + "/train-images-idx3-ubyte");
  write(gz + "/train-images-idx3-ubyte.gz", std::string("\x1f\x8b\x08\0\0\0\0\0\0\3garbage", 17));
  expect_sentence("train lenet5 --data " + gz, {".gz"});
}

TEST(Mistakes, InDevices) {
  expect_sentence("train lenet5 --device gpu", {"gpu", "opencl"});
  expect_sentence("train lenet5 --device opencl:nosuchdevice", {"nosuchdevice"});
  expect_sentence("train lenet5 --device opencl", {"libOpenCL.so"}, "SITU_OPENCL_LIBRARY=/nowhere/libOpenCL.so");
  expect_sentence("train lenet5 --device opencl", {"device"}, "OCL_ICD_VENDORS=" + folder("no-drivers"));
}

TEST(Mistakes, InWeights) {
  const std::string out = folder("weights");
  expect_sentence("eval " + out + "/none.safetensors", {"none"});
  ASSERT_EQ(situ(kTiny + "--device cpu --out " + out).code, 0);
  const std::string bytes = read(out + "/model.safetensors");
  write(out + "/model.safetensors", bytes.substr(0, bytes.size() - 5));
  expect_sentence("eval " + out + "/model.safetensors", {"model.safetensors"});
  write(out + "/model.safetensors", bytes);
  std::string info = read(out + "/model.json");
  info.replace(info.find("\"channels\": 16"), 14, "\"channels\": 17");
  write(out + "/model.json", info);
  expect_sentence("eval " + out + "/model.safetensors", {"another model"});
  write(out + "/model.json", "{}");
  expect_sentence("eval " + out + "/model.safetensors", {"model.json"});
  expect_sentence("ledger " + out + "/nowhere", {"nowhere"});
}

TEST(Cache, ReadOnlyOrCorruptedIsNoReasonToStop) {
  if (!device_under_test("opencl")) GTEST_SKIP() << "opencl is left out by SITU_TEST_DEVICES";
  const std::string bench = "bench mlp:20-10-5 --batch 8 --device opencl --seconds 0.05 --json";
  const Result readonly = situ(bench, "SITU_CACHE=/proc/situ");
  EXPECT_EQ(readonly.code, 0) << readonly.text;
  EXPECT_NE(readonly.text.find("note"), std::string::npos) << readonly.text;
  const std::string cache = folder("cache");
  ASSERT_EQ(situ(bench, "SITU_CACHE=" + cache).code, 0);
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(cache))
    if (entry.is_regular_file()) {
      write(entry.path().string(), "garbage");
      ++files;
    }
  EXPECT_GT(files, 0);
  const Result corrupted = situ(bench, "SITU_CACHE=" + cache);
  EXPECT_EQ(corrupted.code, 0) << corrupted.text;
}

TEST(Devices, AreListed) {
  const Result r = situ("devices --quick");
  EXPECT_EQ(r.code, 0) << r.text;
  EXPECT_NE(r.text.find("cpu:"), std::string::npos) << r.text;
}

TEST(Command, TuningIsSetByHandAndMistakesInItAreNamed) {
  const std::string bench = "bench mlp:64-16-4 --batch 8 --seconds 0.01 ";
  EXPECT_EQ(situ(bench + "--tuning gemm.MC=48,gemm.KC=64,gemm.MR2=6,gemm.paired=0,gemm.halves=0,gemm.pieces=0").code,
            0);
  const auto fails_with = [&](const std::string& arguments, const std::string& part) {
    const Result result = situ(bench + arguments);
    EXPECT_NE(result.code, 0) << arguments;
    EXPECT_NE(result.text.find(part), std::string::npos) << result.text;
  };
  fails_with("--tuning gemm.NC=48", "there is no tuning key `gemm.NC` of cpu: did you mean `gemm.");
  fails_with("--tuning gemm.MC=many", "`gemm.MC=many` sets no tuning: write gemm.MC=NUMBER");
  fails_with("--tuning gemm.MC", "`gemm.MC` sets no tuning");
  if (!device_under_test("opencl")) return;
  fails_with("--device opencl --tuning submit.flsh=3", "did you mean `submit.flush`?");
  fails_with("--device opencl --tuning gemm.VW=3", "tuning gemm.VW = 3 is not possible");
  EXPECT_EQ(situ(bench + "--device opencl --max-submit-ms 0.5 --tuning submit.flush=4,submit.record=1").code, 0);
}

}  // namespace
}  // namespace situ::test
#endif
