// doctor_test.cpp -- `situ doctor`: what the bundle holds, and what it must not.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "base/personal.h"
#include "base/system.h"
#include "harness.h"
#include "io/archive.h"

namespace situ::test {
namespace {

namespace fs = std::filesystem;

TEST(Personal, PathsGoEverywhereAndNamesAsWholeWords) {
  const Personal personal{{{"/home/ann/.cache/situ", "CACHE"}, {"/home/ann", "HOME"}},
                          {{"ann", "USER"}, {"box", "HOST"}}};
  EXPECT_EQ(without(personal, "/home/ann/.cache/situ/x, /home/ann/y by ann@box: annual mailbox, ann_1 box"),
            "CACHE/x, HOME/y by USER@HOST: annual mailbox, ann_1 HOST");
  EXPECT_EQ(without(personal, "annann/home/annann"), "annannHOMEann");
  EXPECT_EQ(without({{}, {{"a", "aa"}}}, "a a"), "aa aa");
}

TEST(Personal, IsWhatTheEnvironmentAndTheSystemSay) {
  const std::string home = std::getenv("HOME") ? std::getenv("HOME") : "";
  setenv("HOME", "/nowhere/else/", 1);
  setenv("LOGNAME", "some-body", 1);
  const Personal personal = personal_data({{"/some/cache", "CACHE"}});
  home.empty() ? unsetenv("HOME") : setenv("HOME", home.c_str(), 1);
  unsetenv("LOGNAME");
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const std::string here = fs::current_path().string();
  EXPECT_EQ(without(personal, fmt::format("/nowhere/else/x /some/cache/y some-body {}/z", here)),
            "HOME/x CACHE/y USER HERE/z");
  if (std::string(host) != "localhost") {
    EXPECT_EQ(without(personal, fmt::format("on {}.", host)), "on HOST.");
  }
}

TEST(Archive, IsWhatTarUnpacks) {
  const TemporaryFolder folder;
  const io::NamedFiles files = {
      {"a/empty", ""}, {"a/block", std::string(512, 'x')}, {"a/b/long", std::string(100001, 'y')}, {"z", "z\n"}};
  write_file_atomic(folder.file("t.tar.gz"), io::tar_gz(files));
  ASSERT_EQ(std::system(fmt::format("cd {} && tar xzf t.tar.gz && tar tvzf t.tar.gz > list", folder.path()).c_str()),
            0);
  for (const auto& [name, contents] : files) EXPECT_EQ(read_file(folder.file(name)), contents) << name;
  const std::string list = read_file(folder.file("list"));
  EXPECT_NE(list.find("-rw-r--r-- 0/0"), std::string::npos) << "owners are not named:\n" << list;
}

TEST(System, IsDescribedWithoutItsName) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  std::string keys;
  for (const auto& [key, value] : describe_system()) {
    keys += key + " ";
    EXPECT_FALSE(value.empty()) << key;
    EXPECT_NE(value, host) << key;
  }
  EXPECT_NE(keys.find("machine processors memory MiB"), std::string::npos) << keys;
}

#ifdef SITU_TEST_COMMAND
struct Result {
  int code = 0;
  std::string text;
};
Result doctor(const std::string& arguments, const std::string& home) {
  const std::string command = fmt::format("HOME={0} USER=annabel-secret SITU_CACHE={0}/.cache {1} doctor {2} 2>&1",
                                          home, SITU_TEST_COMMAND, arguments);
  std::FILE* pipe = popen(command.c_str(), "r");
  Result result;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) result.text.append(buffer, n);
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return result;
}

std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[fs::relative(entry.path(), folder).string()] = read_file(entry.path().string());
  return files;
}

// Whose machine it is, in any form this test can know.
std::vector<std::string> secrets(const std::string& home) {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  std::vector<std::string> list = {home, "annabel-secret", fs::current_path().string()};
  if (std::string(host) != "localhost") list.emplace_back(host);
  for (const char* path : {"/etc/machine-id", "/sys/class/dmi/id/product_uuid", "/sys/class/dmi/id/product_serial"}) {
    std::ifstream file(path);
    std::string line;
    if (std::getline(file, line) && line.size() > 6) list.push_back(line);
  }
  return list;
}

TEST(Doctor, PutsNoPersonalDataIntoAWholeBundle) {
  const TemporaryFolder folder;
  const std::string home = folder.file("annabel-secret"), out = home + "/bundle";
  fs::create_directories(out);
  write_file_atomic(out + "/log.txt", "an earlier run\n");  // that never came to its end
  const Result r = doctor("--device cpu --quick --out " + out, home);
  ASSERT_EQ(r.code, 0) << r.text;
  auto files = files_of(out);
  for (const char* name : {"README.txt", "log.txt", "log-before.txt", "system.json", "devices.json", "cpu/tuning.json",
                           "cpu/self_test.json", "cpu/roofline.json", "cpu/ledger.json"})
    EXPECT_TRUE(files.contains(name)) << name << "\n" << r.text;
  EXPECT_NE(files["log-before.txt"].find("an earlier run"), std::string::npos);
  const auto ledger = nlohmann::json::parse(files["cpu/ledger.json"]);
  EXPECT_LT(ledger["test loss after"], ledger["test loss before"]);
  EXPECT_EQ(ledger["waits"], 0);
  EXPECT_EQ(nlohmann::json::parse(files["cpu/self_test.json"])["wrong"], 0);
  EXPECT_GT(nlohmann::json::parse(files["cpu/roofline.json"]).size(), 3u);
  for (const auto& [name, text] : files)
    for (const std::string& secret : secrets(home))
      EXPECT_EQ(text.find(secret), std::string::npos) << name << ": " << secret;
}

// A part that fails is a line of the log, itself without names; the archive is made all the same.
TEST(Doctor, GoesOnWhenAPartFails) {
  const TemporaryFolder folder;
  const std::string home = folder.file("annabel-secret"), out = home + "/d.tar.gz";
  fs::create_directories(home);
  const Result r = doctor(fmt::format("--device opencl:{}/none --quick --out {}", home, out), home);
  ASSERT_EQ(r.code, 0) << r.text;
  EXPECT_FALSE(fs::exists(out + ".parts"));
  ASSERT_EQ(std::system(fmt::format("cd {} && tar xzf d.tar.gz", home).c_str()), 0);
  auto files = files_of(home + "/situ-doctor");
  EXPECT_NE(files["log.txt"].find("opencl/tuning.json: failed"), std::string::npos) << files["log.txt"];
  for (const auto& [name, text] : files)
    for (const std::string& secret : secrets(home))
      EXPECT_EQ(text.find(secret), std::string::npos) << name << ": " << secret;
  EXPECT_NE(doctor("--out x.zip", home).text.find("choose such a name"), std::string::npos);
}
#endif

}  // namespace
}  // namespace situ::test
