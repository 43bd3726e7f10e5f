// program_cache_test.cpp -- compiled programs on disk: used again, never trusted blindly, never in the way.
#include "backend/opencl/program_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "backend/opencl/runtime.h"
#include "backend/opencl/source.h"
#include "base/error.h"
#include "base/file.h"
#include "icd/opencl_fixture.h"

namespace situ::opencl {
namespace {

const ProgramSource kProgram{"seven.cl", "__kernel void seven(__global int* y) { y[0] = SEVEN; }\n", " -DSEVEN=7"};

class ProgramCacheTest : public test::OpenclTest {
 protected:
  void SetUp() override {
    OpenclTest::SetUp();
    if (IsSkipped()) return;
    run = std::make_unique<Runtime>(load_opencl(), choose_device(load_opencl(), ""));
    run->open();
  }
  std::unique_ptr<ProgramCache> open(const std::string& path) const {
    return std::make_unique<ProgramCache>(run->cl, run->context.get(), run->found, path);
  }
  int run_seven(cl_program program) const {
    cl_int code = CL_SUCCESS;
    const Handle<cl_kernel> kernel(run->cl.clCreateKernel(program, "seven", &code), run->cl.clReleaseKernel);
    check("clCreateKernel", code);
    const Handle<cl_mem> y = run->make_buffer(CL_MEM_READ_WRITE, 4, nullptr);
    const cl_mem argument = y.get();
    // NOLINTNEXTLINE(bugprone-sizeof-expression): a buffer is passed as its handle, which is a pointer
    check("clSetKernelArg", run->cl.clSetKernelArg(kernel.get(), 0, sizeof(argument), &argument));
    const size_t one = 1;
    check("clEnqueueNDRangeKernel",
          run->cl.clEnqueueNDRangeKernel(run->queue, kernel.get(), 1, nullptr, &one, nullptr, 0, nullptr, nullptr));
    int result = 0;
    check("clEnqueueReadBuffer",
          run->cl.clEnqueueReadBuffer(run->queue, y.get(), CL_TRUE, 0, 4, &result, 0, nullptr, nullptr));
    return result;
  }
  // Spoils the file of kProgram, then expects it to be noticed, the program to work and the file to be mended.
  void expect_mended(const std::function<std::string(const std::string&)>& spoil) {
    const std::string path = open(folder.path())->path_of(kProgram);
    open(folder.path())->get(kProgram);
    const std::string good = read_file(path);
    write_file_atomic(path, spoil(good));
    const auto cache = open(folder.path());
    EXPECT_EQ(run_seven(cache->get(kProgram)), 7);
    EXPECT_EQ(cache->stats().rejected, 1);
    EXPECT_EQ(cache->stats().compiled, 1);
    EXPECT_EQ(cache->stats().saved, 1);
    EXPECT_TRUE(cache->notes().empty());
    const auto again = open(folder.path());
    again->get(kProgram);
    EXPECT_EQ(again->stats().loaded, 1);
  }

  std::unique_ptr<Runtime> run;
  const TemporaryFolder folder;
};

TEST_F(ProgramCacheTest, SecondDeviceLoadsWhatTheFirstCompiled) {
  const auto first = open(folder.path());
  const cl_program program = first->get(kProgram);
  EXPECT_EQ(first->get(kProgram), program);
  EXPECT_EQ(first->stats().compiled, 1);
  EXPECT_EQ(first->stats().saved, 1);
  const auto second = open(folder.path());
  EXPECT_EQ(run_seven(second->get(kProgram)), 7);
  EXPECT_EQ(second->stats().compiled, 0);
  EXPECT_EQ(second->stats().loaded, 1);
  EXPECT_TRUE(second->notes().empty());
}

TEST_F(ProgramCacheTest, EveryPartOfTheKeyCounts) {
  const auto cache = open(folder.path());
  ProgramSource options = kProgram, text = kProgram;
  options.options = " -DSEVEN=8";
  text.text += "\n";
  EXPECT_NE(cache->path_of(kProgram), cache->path_of(options));
  EXPECT_NE(cache->path_of(kProgram), cache->path_of(text));
  for (std::string DeviceInfo::*part : {&DeviceInfo::name, &DeviceInfo::driver, &DeviceInfo::platform_version}) {
    FoundDevice other = run->found;
    other.info.*part += "x";
    EXPECT_NE(ProgramCache(run->cl, run->context.get(), other, folder.path()).path_of(kProgram),
              cache->path_of(kProgram));
  }
}

TEST_F(ProgramCacheTest, DamagedFilesAreRebuiltAndReplaced) {
  expect_mended([](const std::string& file) { return file.substr(0, file.size() / 2); });
  expect_mended([](const std::string& file) { return file.substr(0, 10); });
  expect_mended([](const std::string&) { return std::string(); });
  expect_mended([](const std::string&) { return std::string(5000, 'x'); });
  expect_mended([](const std::string& file) { return file + "tail"; });
  for (double place : {0.0, 0.02, 0.3, 0.6, 0.999})
    expect_mended([place](const std::string& good) {
      std::string file = good;
      file[static_cast<size_t>(place * static_cast<double>(file.size()))] ^= 1;
      return file;
    });
}

TEST_F(ProgramCacheTest, FileOfAnotherProgramIsNotUsed) {
  const auto cache = open(folder.path());
  ProgramSource eight = kProgram;
  eight.options = " -DSEVEN=8";
  cache->get(eight);
  std::string foreign = read_file(cache->path_of(eight));
  expect_mended([&](const std::string&) { return foreign; });
}

TEST_F(ProgramCacheTest, AFolderInPlaceOfTheFileOnlyCostsTime) {
  std::filesystem::create_directories(open(folder.path())->path_of(kProgram) + "/inside");
  const auto cache = open(folder.path());
  EXPECT_EQ(run_seven(cache->get(kProgram)), 7);
  EXPECT_EQ(cache->notes().size(), 1u);
}

TEST_F(ProgramCacheTest, WorksWithoutAFolder) {
  const auto cache = open("");
  EXPECT_EQ(run_seven(cache->get(kProgram)), 7);
  EXPECT_TRUE(cache->notes().empty());
  EXPECT_EQ(cache->path_of(kProgram), "");
}

TEST_F(ProgramCacheTest, MissingFolderIsMade) {
  const auto cache = open(folder.file("a/b"));
  cache->get(kProgram);
  EXPECT_TRUE(std::filesystem::exists(cache->path_of(kProgram)));
}

TEST_F(ProgramCacheTest, UnusableFolderGivesOneNote) {
  write_file_atomic(folder.file("file"), "not a folder");
  const auto cache = open(folder.file("file/below"));
  ProgramSource other = kProgram;
  other.options = " -DSEVEN=9";
  EXPECT_EQ(run_seven(cache->get(kProgram)), 7);
  EXPECT_EQ(run_seven(cache->get(other)), 9);
  EXPECT_EQ(cache->notes().size(), 1u);
}

TEST_F(ProgramCacheTest, ReadOnlyFolderIsReadAndGivesOneNote) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  open(folder.path())->get(kProgram);
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  const auto cache = open(folder.path());
  ProgramSource other = kProgram;
  other.options = " -DSEVEN=10";
  EXPECT_EQ(run_seven(cache->get(kProgram)), 7);
  EXPECT_EQ(run_seven(cache->get(other)), 10);
  EXPECT_EQ(cache->stats().loaded, 1);
  EXPECT_EQ(cache->notes().size(), 1u);
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
}

TEST_F(ProgramCacheTest, FolderThatVanishesIsNoFailure) {
  const auto cache = open(folder.file("gone"));
  std::filesystem::remove_all(folder.file("gone"));
  EXPECT_EQ(run_seven(cache->get(kProgram)), 7);
  EXPECT_EQ(cache->notes().size(), 1u);
}

TEST_F(ProgramCacheTest, ManyThreadsAndCachesShareAFolder) {
  const std::unique_ptr<ProgramCache> caches[] = {open(folder.path()), open(folder.path())};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int value = 20; value < 23; ++value) {
        ProgramSource source = kProgram;
        source.options = " -DSEVEN=" + std::to_string(value);
        EXPECT_NE(caches[i % 2]->get(source), nullptr);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& cache : caches) EXPECT_EQ(cache->stats().compiled + cache->stats().loaded, 3);
  const auto last = open(folder.path());
  ProgramSource source = kProgram;
  source.options = " -DSEVEN=22";
  EXPECT_EQ(run_seven(last->get(source)), 22);
  EXPECT_EQ(last->stats().loaded, 1);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_EQ(entry.path().extension(), ".clbin");
    ++files;
  }
  EXPECT_EQ(files, 3);
}

TEST_F(ProgramCacheTest, BuildFailureIsNotKept) {
  const auto cache = open(folder.path());
  const ProgramSource broken{"broken.cl", "__kernel void f() { no_such_thing; }\n", ""};
  for (int i = 0; i < 2; ++i) {
    try {
      cache->get(broken);
      FAIL() << "built";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::environment);
      EXPECT_NE(std::string(error.what()).find("no_such_thing"), std::string::npos) << error.what();
      EXPECT_LT(std::string(error.what()).size(), 3000u);
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// --- source texts ---------------------------------------------------------------------------------------------------
const char* find_text(std::string_view name) {
  if (name == "a.cl") return "// a\n#include \"b.clh\"\n  #  include \"c.clh\" // twice\nint a;\n#include <d>\n";
  if (name == "b.clh") return "#include \"c.clh\"\nint b;";
  if (name == "c.clh") return "int c;\n";
  return nullptr;
}

#ifdef SITU_TEST_ICD
// A driver that takes its time when asked for a binary: the first is saved at once, and shows it; the others wait. Slow
// is slow beside building, which takes a second where the machine is busy.
TEST_F(ProgramCacheTest, BinariesThatAreSlowToGetAreSavedLater) {
  const test::Environment slow("SITU_ICD_SLOW_BINARIES_MS", "600");
  const test::Environment through("SITU_OPENCL_LIBRARY", SITU_TEST_ICD);
  Runtime other(load_opencl(), choose_device(load_opencl(), ""));
  other.open();
  const TemporaryFolder place;
  const auto program = [](int value) {
    return ProgramSource{"many.cl", fmt::format("__kernel void many(__global int* y) {{ y[0] = {}; }}\n", value), ""};
  };
  ProgramCache cache(other.cl, other.context.get(), other.found, place.path());
  const int programs = 6;
  for (int i = 0; i < programs; ++i) cache.get(program(i));
  const int waiting = cache.stats().waiting;
  EXPECT_GE(cache.stats().saved, 1);
  EXPECT_GE(waiting, 2);
  EXPECT_EQ(cache.stats().saved + waiting, programs);
  cache.save_waiting(0);
  EXPECT_EQ(cache.stats().waiting, waiting) << "no time, nothing saved";
  cache.save_waiting(0.03);
  EXPECT_EQ(cache.stats().waiting, waiting - 1) << "one is begun, none after the time is over";
  cache.save_waiting(60);
  EXPECT_EQ(cache.stats().waiting, 0);
  EXPECT_EQ(cache.stats().saved, programs);
  for (int i = 0; i < programs; ++i) EXPECT_TRUE(std::filesystem::exists(cache.path_of(program(i)))) << i;
}
#endif

TEST(OpenclSource, IncludesArePutInPlaceOnce) {
  EXPECT_EQ(assemble_source("int p;", "a.cl", find_text),
            "#line 1 \"prelude\"\nint p;\n"
            "#line 1 \"a.cl\"\n// a\n"
            "#line 1 \"b.clh\"\n#line 1 \"c.clh\"\nint c;\n#line 2 \"b.clh\"\nint b;\n"
            "#line 3 \"a.cl\"\n#line 4 \"a.cl\"\nint a;\n#include <d>\n");
  EXPECT_THROW(assemble_source("", "missing.cl", find_text), Error);
  EXPECT_THROW(assemble_source("#include \"missing.clh\"", "a.cl", find_text), Error);
}

TEST(OpenclSource, KnowsWhenTheGroupMatters) {
  EXPECT_TRUE(runs_in_any_group("y[get_global_id(0)] = 1;"));
  EXPECT_FALSE(runs_in_any_group("__local float t;"));
  EXPECT_FALSE(runs_in_any_group("get_local_id(0)"));
  EXPECT_FALSE(runs_in_any_group("barrier(CLK_GLOBAL_MEM_FENCE)"));
  EXPECT_FALSE(runs_in_any_group("__attribute__((reqd_work_group_size(8, 8, 1)))"));
}

}  // namespace
}  // namespace situ::opencl
