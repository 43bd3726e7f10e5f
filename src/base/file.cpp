// file.cpp -- whole files over POSIX calls: std::ofstream can neither fsync nor say why something failed.
#include "base/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <new>
#include <system_error>

#include "base/error.h"

namespace situ {
namespace {

namespace fs = std::filesystem;

std::string reason(int code) { return std::generic_category().message(code); }

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int close() {
    const int result = fd_ >= 0 ? ::close(fd_) : 0;
    fd_ = -1;
    return result;
  }

 private:
  int fd_;
};

// Removes a temporary file unless it was renamed into its place.
struct Remover {
  std::string path;
  bool armed = true;
  ~Remover() {
    if (armed) ::unlink(path.c_str());
  }
};

// O_NONBLOCK: opening a pipe without a writer must not hang; for regular files it changes nothing.
int open_to_read(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd >= 0) return fd;
  if (errno == ENOENT || errno == ENOTDIR) fail("'{}' does not exist: check the path", path);
  if (errno == EACCES || errno == EPERM) fail("'{}' may not be read: give read permission with chmod +r", path);
  fail_environment("'{}' cannot be opened ({}): check the path and the disk", path, reason(errno));
}

uint64_t checked_size(int fd, const std::string& path, uint64_t limit) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail_environment("'{}' cannot be examined ({}): check the disk", path, reason(errno));
  if (S_ISDIR(info.st_mode)) fail("'{}' is a folder: name a file inside it", path);
  if (!S_ISREG(info.st_mode)) fail("'{}' is a pipe or a device: save its contents to a regular file first", path);
  const uint64_t size = static_cast<uint64_t>(info.st_size);
  if (size > limit) fail("'{}' is {} bytes long and at most {} are allowed: is it the right file?", path, size, limit);
  return size;
}

std::string buffer_for(const std::string& path, uint64_t size) {
  try {
    return std::string(size, '\0');
  } catch (const std::bad_alloc&) {
    fail_environment("'{}' needs {} bytes of memory to be read: free some memory", path, size);
  }
}

void write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), std::min<size_t>(bytes.size(), size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_environment("'{}' cannot be written ({}): free some disk space", path, reason(errno));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

struct Target {
  std::string path;  // with symbolic links resolved, so that the rename does not replace the link
  mode_t mode = 0;   // of the file replaced; 0 if there is none
};

Target resolve_target(const std::string& path) {
  Target target{path};
  std::error_code code;
  if (fs::is_symlink(path, code)) {
    const fs::path resolved = fs::canonical(path, code);
    if (!code) target.path = resolved.string();  // a link that leads nowhere is replaced itself
  }
  struct stat info {};
  if (::stat(target.path.c_str(), &info) != 0) return target;
  if (S_ISDIR(info.st_mode)) fail("'{}' is a folder and cannot be written as a file: choose another name", path);
  if (!S_ISREG(info.st_mode)) fail("'{}' is a pipe or a device: choose the name of a regular file", path);
  target.mode = info.st_mode & 07777;
  return target;
}

int create_temporary(const std::string& temporary, const std::string& path) {
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd >= 0) return fd;
  if (errno == ENOENT || errno == ENOTDIR) fail("'{}' cannot be written: make its folder first", path);
  if (errno == EACCES || errno == EPERM || errno == EROFS)
    fail("'{}' cannot be written ({}): choose a folder you may write to", path, reason(errno));
  fail_environment("'{}' cannot be written ({}): check the disk", path, reason(errno));
}

// The rename is durable only once the folder is; file systems that cannot sync a folder say EINVAL.
void sync_folder_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  Descriptor folder(::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0) return;  // a folder may be writable and searchable without being readable
  if (::fsync(folder.get()) != 0 && errno != EINVAL)
    fail_environment("the folder of '{}' cannot be synced ({}): check the disk", path, reason(errno));
}

}  // namespace

std::string read_file(const std::string& path, uint64_t limit) {
  const Descriptor file(open_to_read(path));
  // One byte more than the size: the end is seen without growing, and a file that grows meanwhile is still read whole.
  std::string bytes = buffer_for(path, checked_size(file.get(), path, limit) + 1);
  size_t got = 0;
  while (true) {
    if (got == bytes.size()) bytes.resize(2 * got);
    const ssize_t n = ::read(file.get(), bytes.data() + got, std::min<size_t>(bytes.size() - got, size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_environment("'{}' cannot be read ({}): check the disk", path, reason(errno));
    if (n == 0) break;
    got += static_cast<size_t>(n);
    if (got > limit) fail("'{}' is longer than the {} bytes allowed: is it the right file?", path, limit);
  }
  bytes.resize(got);
  return bytes;
}

void write_file_atomic(const std::string& path, std::string_view bytes) { write_file_atomic(path, {&bytes, 1}); }

void write_file_atomic(const std::string& path, std::span<const std::string_view> pieces) {
  static std::atomic<unsigned> counter{0};
  const Target target = resolve_target(path);
  const std::string temporary = fmt::format("{}.tmp-{}-{}", target.path, ::getpid(), counter++);
  Descriptor file(create_temporary(temporary, path));
  Remover remover{temporary};
  for (std::string_view piece : pieces) write_all(file.get(), piece, path);
  if (target.mode != 0) (void)!::fchmod(file.get(), target.mode);  // as far as the file system knows modes
  if (::fsync(file.get()) != 0 || file.close() != 0)
    fail_environment("'{}' cannot be written ({}): check the disk", path, reason(errno));
  if (::rename(temporary.c_str(), target.path.c_str()) != 0)
    fail_environment("'{}' cannot be put in its place ({}): check the folder", path, reason(errno));
  remover.armed = false;
  sync_folder_of(target.path);
}

void make_folders(const std::string& path) {
  if (path.empty()) return;
  std::error_code code;
  fs::create_directories(path, code);
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return;
  fail("the folder '{}' cannot be made ({}): choose another place", path,
       code ? code.message() : "a file of that name exists");
}

TemporaryFolder::TemporaryFolder() : path_((fs::temp_directory_path() / "situ-XXXXXX").string()) {
  if (::mkdtemp(path_.data()) == nullptr)
    fail_environment("the temporary folder '{}' cannot be made ({}): set TMPDIR", path_, reason(errno));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace situ
