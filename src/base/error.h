// error.h -- the one exception type, and the two ways to raise it.
//
// fail(...)         a mistake the user can fix or an environment that lacks something: one sentence that names the fix.
// SITU_ASSERT(c)    a bug in situ itself: raises too, never aborts the host process.
#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace situ {

enum class ErrorKind { user, environment, bug };

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(ErrorKind::user, fmt::format(text, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void fail_environment(fmt::format_string<Args...> text, Args&&... args) {
  throw Error(ErrorKind::environment, fmt::format(text, std::forward<Args>(args)...));
}

[[noreturn]] void report_bug(const char* file, int line, const char* condition, const std::string& detail);

}  // namespace situ

// SITU_ASSERT(condition) or SITU_ASSERT(condition, "format {}", value)
#define SITU_ASSERT(condition, ...)                                                      \
  do {                                                                                   \
    if (!(condition)) [[unlikely]]                                                       \
      ::situ::report_bug(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (0)
