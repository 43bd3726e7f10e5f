#include "base/process.h"

#include <cstdio>
#include <cstring>
#include <ctime>

namespace situ {
namespace {

int64_t status_kib(const char* key) {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  if (!file) return 0;
  char line[256];
  long long kib = 0;
  while (std::fgets(line, sizeof line, file))
    if (std::strncmp(line, key, std::strlen(key)) == 0) std::sscanf(line + std::strlen(key), "%lld", &kib);
  std::fclose(file);
  return kib;
}

}  // namespace

int64_t resident_bytes() { return status_kib("VmRSS:") * 1024; }
int64_t peak_resident_bytes() { return status_kib("VmHWM:") * 1024; }

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace situ
