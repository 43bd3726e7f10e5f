// file.h -- whole files in, whole files out, and folders.
//
// A file is written beside its place under a temporary name, fsynced and renamed, then its folder is fsynced: after a
// crash or on a full disk the old file or the new one is there, never half of one.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace situ {

inline constexpr uint64_t kMaxFileBytes = uint64_t{8} << 30;

// The whole of a regular file; one sentence if it is missing, unreadable, a folder or longer than limit bytes.
std::string read_file(const std::string& path, uint64_t limit = kMaxFileBytes);

// Replaces or creates path by the bytes, or leaves everything as it was and raises. Follows a symbolic link at path.
void write_file_atomic(const std::string& path, std::string_view bytes);
// The same for bytes that lie in several places: they are written one after the other, without gathering them first.
void write_file_atomic(const std::string& path, std::span<const std::string_view> pieces);

// Makes the folder and those above it; nothing happens if it is there or the path is empty.
void make_folders(const std::string& path);

// A fresh folder under the system's temporary folder, removed with all it holds at the end of its scope.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

}  // namespace situ
