// estimate_cli_test.cpp -- `situ estimate` and `situ advise` as people use them.
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/file.h"

#ifdef SITU_TEST_COMMAND
namespace situ::test {
namespace {

struct Result {
  int code = 0;
  std::string text;
};

Result situ(const std::string& arguments, const std::string& environment = "", bool errors = true) {
  const std::string command = environment + " " SITU_TEST_COMMAND " " + arguments + (errors ? " 2>&1" : " 2>/dev/null");
  std::FILE* pipe = popen(command.c_str(), "r");
  Result result;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) result.text.append(buffer, n);
  result.code = WEXITSTATUS(pclose(pipe));
  return result;
}

TEST(EstimateCommand, PhoneInJson) {
  const Result r = situ("estimate lenet5 --batch 16 --device adreno-650 --json");
  ASSERT_EQ(r.code, 0) << r.text;
  const auto j = nlohmann::json::parse(r.text);
  EXPECT_EQ(j["estimate"], true);
  ASSERT_EQ(j["processors"].size(), 2u);
  for (const auto& p : j["processors"]) {
    const double sum =
        p["compute"].get<double>() + p["movement"].get<double>() + p["launch"].get<double>() + p["wait"].get<double>();
    EXPECT_NEAR(p["ms"].get<double>(), sum * 1e3, 1e-6);
    EXPECT_LT(p["least_ms"], p["ms"]);
    EXPECT_GT(p["most_ms"], p["ms"]);
    EXPECT_EQ(p["fits"], true);
  }
}

TEST(EstimateCommand, SaysThatItIsAnEstimate) {
  const Result r = situ("estimate lenet5 --batch 16 --device adreno-630 --residency naive");
  ASSERT_EQ(r.code, 0) << r.text;
  for (const char* part : {"estimate of lenet5", "Nothing was run", "not measured on a phone", "from .. to"})
    EXPECT_NE(r.text.find(part), std::string::npos) << part << "\n" << r.text;
}

TEST(EstimateCommand, MistakesGetASentence) {
  const Result phone = situ("estimate lenet5 --device adreno-605");
  EXPECT_EQ(phone.code, 1);
  EXPECT_NE(phone.text.find("did you mean `adreno-6"), std::string::npos) << phone.text;
  EXPECT_EQ(situ("estimate").code, 1);
  const Result away = situ("estimate --calibrate --device adreno-650");
  EXPECT_EQ(away.code, 1);
  EXPECT_NE(away.text.find("is not here"), std::string::npos) << away.text;
  const Result automatic = situ("dump lenet5 --device auto");
  EXPECT_EQ(automatic.code, 1);
  EXPECT_NE(automatic.text.find("name a device"), std::string::npos) << automatic.text;
}

TEST(EstimateCommand, CalibrationIsKeptAndUsed) {
  const TemporaryFolder cache;
  const std::string environment = "SITU_CACHE=" + cache.path();
  const auto basis = [&] {
    const Result r = situ("estimate mlp:20-10-5 --device cpu --threads 1 --json", environment);
    return nlohmann::json::parse(r.text)["processors"][0]["basis"].get<std::string>();
  };
  EXPECT_EQ(basis().find("calibrated"), std::string::npos);
  const Result r = situ("estimate --calibrate --device cpu --threads 1 --seconds 0.1", environment);
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_NE(r.text.find("error band"), std::string::npos) << r.text;
  EXPECT_NE(basis().find("calibrated"), std::string::npos);
}

TEST(EstimateCommand, AdviceCarriesNumbers) {
  const Result r = situ("advise lenet5 --device adreno-650 --batch 16 --json");
  ASSERT_EQ(r.code, 0) << r.text;
  const auto j = nlohmann::json::parse(r.text);
  std::string topics;
  for (const auto& a : j["advice"]) {
    topics += a["topic"].get<std::string>() + " ";
    EXPECT_NE(a["because"].get<std::string>().find_first_of("0123456789"), std::string::npos) << a.dump();
  }
  EXPECT_EQ(topics, "device split batch precision freeze memory ");
}

TEST(EstimateCommand, BenchOnAutoSaysWhatItTook) {
  const Result r = situ("bench mlp:20-10-5 --batch 8 --device auto --threads 1 --seconds 0.01");
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_NE(r.text.find("situ: device auto: "), std::string::npos) << r.text;
  EXPECT_NE(r.text.find("ms a step"), std::string::npos) << r.text;
}

}  // namespace
}  // namespace situ::test
#endif
