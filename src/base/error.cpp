#include "base/error.h"

#include <cstring>

namespace situ {

void report_bug(const char* file, int line, const char* condition, const std::string& detail) {
  const char* tail = std::strstr(file, "src/");
  throw Error(ErrorKind::bug, fmt::format("situ bug at {}:{}: `{}` does not hold{}{}. Please report it.",
                                          tail ? tail : file, line, condition, detail.empty() ? "" : ": ", detail));
}

}  // namespace situ
