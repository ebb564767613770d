// shardproof shrink: the smallest case that fails as a case does.
#include <fmt/format.h>

#include "verify/cli/command.h"
#include "verify/cli/generated.h"
#include "verify/launch/started_ranks.h"

namespace shardproof {
namespace {

constexpr uint64_t kRunsMax = 1'000'000'000;

}  // namespace

void AddShrink(CLI::App& app, int* exit_code) {
  struct Arguments {
    std::string path;
    std::string property;
    std::string out;
    std::optional<uint64_t> runs;
    ExecuteOptions execute;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("shrink", "Find the smallest case that still fails in the same way");
  command->group(kFrameworkDoor);
  command->add_option("CASE", arguments->path, "Case file, or the directory of a report")
      ->required();
  command
      ->add_option("--property", arguments->property,
                   "Keep the finding of this property (default: of the first that fails)")
      ->type_name("ID");
  command
      ->add_option("--runs", arguments->runs,
                   "Run at most N cases (default 500, or 60 for a subject)")
      ->check(CLI::Range(uint64_t{0}, kRunsMax))
      ->type_name("N");
  command
      ->add_option("--out", arguments->out,
                   "Write the smallest case to this file (default: stdout)")
      ->check(NotEmpty)
      ->type_name("FILE");
  command
      ->add_option(
          "--python", arguments->execute.python,
          "Python interpreter for the subject (default: the one whose torch Shardproof was "
          "built against)")
      ->type_name("FILE");
  command->footer(
      "Example:\n"
      "  shardproof shrink out --out smallest.json\n"
      "Exit codes: 0 a smallest case was written, 2 usage or bad input, or the case does not "
      "fail,\n"
      "5 the verifier itself is broken.");
  command->callback([arguments, exit_code] {
    const Status alone = RefuseStartedRanks("simpler cases run");
    if (!alone.ok()) {
      *exit_code = Complain(alone.error());
      return;
    }
    const auto test_case = ReadCaseOf(arguments->path);
    *exit_code = test_case.ok() ? RunShrink(test_case.value(), arguments->property, arguments->runs,
                                            arguments->out, arguments->execute)
                                : Complain(test_case.error());
  });
}

}  // namespace shardproof
