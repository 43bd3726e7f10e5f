// program_cache.cpp -- building, loading and saving programs.
#include "backend/opencl/program_cache.h"

#include <cstring>
#include <filesystem>

#include "backend/opencl/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/version.h"

namespace situ::opencl {
namespace {

constexpr std::string_view kMagic = "situ-program-1\n";
constexpr uint64_t kMaxBinaryBytes = uint64_t{256} << 20;
constexpr double kQuickSeconds = 0.02, kQuickShare = 0.2;  // saving may take this, and so much of what building took

struct Header {
  uint64_t key_bytes = 0, binary_bytes = 0, checksum = 0;
};

uint64_t checksum_of(std::string_view key, std::string_view binary) { return hash_of(binary, hash_of(key)); }

// The binary inside a cache file, or empty where anything does not agree with the key.
std::string_view binary_in(std::string_view file, std::string_view key) {
  Header header;
  if (file.size() < kMagic.size() + sizeof(header) || !file.starts_with(kMagic)) return {};
  std::memcpy(&header, file.data() + kMagic.size(), sizeof(header));
  file.remove_prefix(kMagic.size() + sizeof(header));
  if (header.key_bytes != key.size() || !file.starts_with(key)) return {};
  file.remove_prefix(key.size());
  if (header.binary_bytes != file.size() || header.checksum != checksum_of(key, file)) return {};
  return file;
}

std::string build_log(const Api& cl, cl_program program, cl_device_id device) {
  size_t size = 0;
  if (cl.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size) != CL_SUCCESS) return "";
  std::string log(size, '\0');
  if (cl.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr) != CL_SUCCESS)
    return "";
  log.resize(std::strlen(log.c_str()));
  return log;
}

std::string first_lines(const std::string& text, int lines) {
  size_t end = 0;
  for (; lines > 0 && end != std::string::npos; --lines) end = text.find('\n', end == 0 ? 0 : end + 1);
  return text.substr(0, std::min(end, size_t{2000}));
}

std::string device_binary(const Api& cl, cl_program program) {
  size_t size = 0;
  if (cl.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(size), &size, nullptr) != CL_SUCCESS) return "";
  std::string binary(size, '\0');
  auto* data = reinterpret_cast<unsigned char*>(binary.data());
  if (size == 0 || cl.clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(data), &data, nullptr) != CL_SUCCESS)
    return "";
  return binary;
}

// Warnings are the kernel lint's business; some drivers print them on the host's stderr.
std::string driver_options(const std::string& options) { return "-w" + options; }

}  // namespace

ProgramCache::ProgramCache(const Api& cl, cl_context context, const FoundDevice& device, std::string folder)
    : cl_(cl),
      context_(context),
      device_(device.device),
      identity_(fmt::format("situ {}\nplatform {} {}\ndevice {} {}\ndriver {}\n", kVersion, device.info.platform,
                            device.info.platform_version, device.info.name, device.info.version, device.info.driver)),
      folder_(std::move(folder)) {
  if (folder_.empty()) return;
  try {
    make_folders(folder_);
  } catch (const Error& error) {
    note(error.what());
    folder_.clear();
  }
}

std::string ProgramCache::key_of(const ProgramSource& source) const {
  return fmt::format("{}options{}\nsource {} {} bytes {:016x} {:016x}\n", identity_, source.options, source.file,
                     source.text.size(), hash_of(source.text), hash_of(source.text, 1));
}

std::string ProgramCache::path_of(const ProgramSource& source) const {
  return folder_.empty() ? "" : fmt::format("{}/{:016x}.clbin", folder_, hash_of(key_of(source)));
}

cl_program ProgramCache::get(const ProgramSource& source) {
  const std::string key = key_of(source);
  Entry* entry = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Entry>& slot = entries_[key];
    if (!slot) slot = std::make_unique<Entry>();
    entry = slot.get();
  }
  const std::lock_guard lock(entry->building);
  if (!entry->program) entry->program = make(source, key);
  return entry->program.get();
}

Handle<cl_program> ProgramCache::make(const ProgramSource& source, const std::string& key) {
  const std::string path = path_of(source);
  if (!path.empty())
    if (Handle<cl_program> program = load(path, key, source.options)) return program;
  const double begin = now();
  Handle<cl_program> program = compile(source);
  bool at_once = false;
  {
    const std::lock_guard lock(mutex_);
    build_seconds_ += now() - begin;
    at_once = saving_is_quick();
    if (!path.empty() && !at_once) waiting_.push_back({path, key, program.get()});
  }
  if (!path.empty() && at_once) save(path, key, program.get());
  return program;
}

bool ProgramCache::saving_is_quick() const { return save_seconds_ <= kQuickSeconds + kQuickShare * build_seconds_; }

void ProgramCache::save_waiting(double seconds) {
  for (const double begin = now(); now() - begin < seconds;) {
    Waiting one;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) return;
      one = std::move(waiting_.back());
      waiting_.pop_back();
    }
    save(one.path, one.key, one.program);
  }
}

Handle<cl_program> ProgramCache::load(const std::string& path, const std::string& key, const std::string& options) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  std::string file;
  try {
    file = read_file(path, kMaxBinaryBytes);
  } catch (const Error&) {  // unreadable: built again like a damaged one
  }
  const std::string_view binary = binary_in(file, key);
  if (binary.empty()) return count(&Stats::rejected), Handle<cl_program>();
  const auto* data = reinterpret_cast<const unsigned char*>(binary.data());
  const size_t size = binary.size();
  cl_int code = CL_SUCCESS, status = CL_SUCCESS;
  Handle<cl_program> program(cl_.clCreateProgramWithBinary(context_, 1, &device_, &size, &data, &status, &code),
                             cl_.clReleaseProgram);
  if (code != CL_SUCCESS || status != CL_SUCCESS ||
      cl_.clBuildProgram(program.get(), 1, &device_, driver_options(options).c_str(), nullptr, nullptr) != CL_SUCCESS)
    return count(&Stats::rejected), Handle<cl_program>();
  count(&Stats::loaded);
  return program;
}

Handle<cl_program> ProgramCache::compile(const ProgramSource& source) {
  const char* text = source.text.c_str();
  const size_t size = source.text.size();
  cl_int code = CL_SUCCESS;
  Handle<cl_program> program(cl_.clCreateProgramWithSource(context_, 1, &text, &size, &code), cl_.clReleaseProgram);
  check("clCreateProgramWithSource", code);
  code = cl_.clBuildProgram(program.get(), 1, &device_, driver_options(source.options).c_str(), nullptr, nullptr);
  if (code != CL_SUCCESS)
    fail_environment("the driver cannot build {} with '{}' ({}): choose another device or driver\n{}", source.file,
                     driver_options(source.options), code_name(code),
                     first_lines(build_log(cl_, program.get(), device_), 12));
  count(&Stats::compiled);
  return program;
}

void ProgramCache::save(const std::string& path, const std::string& key, cl_program program) {
  const double begin = now();
  const std::string binary = device_binary(cl_, program);
  {
    const std::lock_guard lock(mutex_);
    save_seconds_ += now() - begin;
  }
  if (binary.empty()) return;  // this driver gives no binaries
  const Header header{key.size(), binary.size(), checksum_of(key, binary)};
  const std::string_view pieces[] = {kMagic, {reinterpret_cast<const char*>(&header), sizeof(header)}, key, binary};
  try {
    write_file_atomic(path, pieces);
    count(&Stats::saved);
  } catch (const Error& error) {
    note(error.what());
  }
}

void ProgramCache::note(std::string text) {
  const std::lock_guard lock(mutex_);
  if (notes_.empty()) notes_.push_back(fmt::format("compiled kernels are not kept for the next run: {}", text));
}

void ProgramCache::count(int Stats::*which) {
  const std::lock_guard lock(mutex_);
  ++(stats_.*which);
}

ProgramCache::Stats ProgramCache::stats() const {
  const std::lock_guard lock(mutex_);
  Stats stats = stats_;
  stats.waiting = static_cast<int>(waiting_.size());
  return stats;
}

std::vector<std::string> ProgramCache::notes() const {
  const std::lock_guard lock(mutex_);
  return notes_;
}

}  // namespace situ::opencl
