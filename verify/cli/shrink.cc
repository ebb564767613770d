// shardproof shrink: the smallest case that fails as a case does.
#include <fmt/format.h>

#include "verify/cli/command.h"
#include "verify/cli/generated.h"

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
      app.add_subcommand("shrink", "Find the smallest case that fails in the same way as a case");
  command->add_option("CASE", arguments->path, "Case JSON, or the directory of a report")
      ->required();
  command->add_option("--property", arguments->property,
                      "Whose finding is to stay (default: the first one)");
  command
      ->add_option("--runs", arguments->runs,
                   "Run at most so many cases (default 500, of a subject 60)")
      ->check(CLI::Range(uint64_t{0}, kRunsMax));
  command->add_option("--out", arguments->out, "File for the smallest case (default: stdout)")
      ->check(NotEmpty);
  command->add_option(
      "--python", arguments->execute.python,
      "Python that runs the subject (default: the one with the torch built against)");
  command->callback([arguments, exit_code] {
    const auto test_case = ReadCaseOf(arguments->path);
    *exit_code = test_case.ok() ? RunShrink(test_case.value(), arguments->property, arguments->runs,
                                            arguments->out, arguments->execute)
                                : Complain(test_case.error());
  });
}

}  // namespace shardproof
