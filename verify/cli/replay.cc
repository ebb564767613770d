// shardproof replay: the run of a case file, or the one that a report or evidence directory holds.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "verify/cli/command.h"
#include "verify/cli/execute.h"
#include "verify/evidence/reader.h"

namespace shardproof {
namespace {

/// The "case" of DIR/run.json, where DIR is an evidence directory or a report directory.
Result<Case> CaseOfDirectory(const std::string& directory) {
  SP_ASSIGN(const std::string evidence, FindEvidence(directory));
  const std::string path = evidence + "/run.json";
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  const auto run = nlohmann::json::parse(text.str(), nullptr, false);
  if (!run.is_object() || !run.contains("case")) {
    return BadInput(fmt::format("{}: is not the record of a run: it has no 'case'", path));
  }
  return ParseCase(run["case"]);
}

}  // namespace

Result<Case> ReadCaseOf(const std::string& path) {
  return std::filesystem::is_directory(path) ? CaseOfDirectory(path) : ReadCaseFile(path);
}

void AddReplay(CLI::App& app, const std::vector<std::string>& command_line, int* exit_code) {
  struct Arguments {
    std::string path;
    ExecuteOptions execute;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("replay", "Run a case again, exactly as it was run before");
  command->group(kFrameworkDoor);
  command->add_option("CASE", arguments->path, "Case file, or the directory of a report")
      ->required();
  AddOutputOptions(*command, arguments->execute);
  command->footer("Example:\n  shardproof replay out --report again\n" +
                  std::string(kExitCodesHelp));
  command->callback([arguments, command_line, exit_code] {
    arguments->execute.command_line = command_line;
    const auto test_case = ReadCaseOf(arguments->path);
    *exit_code = test_case.ok() ? Execute(test_case.value(), arguments->execute)
                                : Complain(test_case.error());
  });
}

}  // namespace shardproof
