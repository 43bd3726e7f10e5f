// ledger.cpp -- `situ ledger FOLDER..`: the ledgers of training runs side by side.
#include "base/file.h"
#include "cli/verbs.h"
#include "prof/report.h"

namespace situ::cli {

void add_ledger(CLI::App& app) {
  struct Options {
    std::vector<std::string> folders;
    bool launches = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("ledger", "where the time of training runs went, side by side");
  verb->add_option("folders", o->folders, "output folders of `situ train`")->required();
  verb->add_flag("--launches", o->launches, "every launch too");
  verb->callback([o] {
    std::vector<prof::Measured> columns;
    for (const std::string& folder : o->folders)
      columns.push_back(prof::from_json(read_file(folder + "/ledger.json", 64 << 20), folder + "/ledger.json"));
    fmt::print("{}", prof::side_by_side(columns));
    if (!o->launches) return;
    for (const prof::Measured& m : columns) fmt::print("\n{}\n{}", m.device, prof::launch_table(m));
  });
}

}  // namespace situ::cli
