// main.cpp -- the command `situ`: chooses the verb, turns errors into one sentence and an exit code.
#include <fmt/format.h>
#include <malloc.h>

#include "base/error.h"
#include "base/version.h"
#include "cli/verbs.h"

int main(int argc, char** argv) {
#ifdef M_MMAP_THRESHOLD
  // What is large is given back when it is freed: without this glibc keeps what it once held, beside the arena.
  mallopt(M_MMAP_THRESHOLD, 256 * 1024);
#endif
  CLI::App app{"situ trains neural networks where the data lives: on the GPU through OpenCL, and on the CPU."};
  app.set_version_flag("--version", std::string("situ ") + std::string(situ::kVersion));
  app.require_subcommand(1);
  using namespace situ::cli;
  for (auto add : {add_train, add_eval, add_predict, add_devices, add_dump, add_bench, add_profile, add_tune,
                   add_ledger, add_model, add_lessons, add_doctor, add_estimate, add_advise})
    add(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  } catch (const situ::Error& e) {
    fmt::print(stderr, "situ: {}\n", e.what());
    return e.kind() == situ::ErrorKind::bug ? 3 : 1;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "situ: out of memory: use a smaller batch\n");
    return 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "situ: {}\n", e.what());
    return 3;
  }
  return 0;
}
