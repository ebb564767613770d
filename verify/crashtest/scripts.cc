#include "verify/crashtest/scripts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "verify/process/program.h"

namespace shardproof::crashtest {
namespace {

namespace fs = std::filesystem;
using crash::BadState;
using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kWritePatience{60000};
/// Beyond the deadlines of its two loads: importing torch, twice.
constexpr milliseconds kRunPatience{120000};

/// The smallest of each group, then the next ones; each disk once, whichever models leave it.
std::vector<std::pair<size_t, const BadGroup*>> Chosen(const Outcome& outcome, int64_t count_max) {
  std::vector<std::pair<size_t, const BadGroup*>> chosen;
  size_t most = 0;
  for (const BadGroup& group : outcome.groups) most = std::max(most, group.members.size());
  for (size_t i = 0; i < most; ++i) {
    for (const BadGroup& group : outcome.groups) {
      if (static_cast<int64_t>(chosen.size()) == count_max) return chosen;
      if (i < group.members.size()) chosen.emplace_back(group.members[i], &group);
    }
  }
  return chosen;
}

Json WhatJson(const What& what, const std::string& answer) {
  Json json = what.Json();
  json["answer"] = answer;
  return json;
}

Json AllowedJson(const BadState& bad) {
  Json names = Json::array();
  for (const crash::Loaded loaded : bad.allowed) names.push_back(ToString(loaded));
  return names;
}

/// All that the script and the report say; _crash_script.py writes both from it.
Json TellState(const Options& options, const Outcome& outcome, const BadState& bad,
               const BadGroup& group) {
  Json operations = Json::array();
  for (const crash::FileOperation& operation : outcome.operations) {
    operations.push_back(fmt::format("process {}: {}", operation.rank, Describe(operation)));
  }
  return {{"command", CommandText(options.command)},
          {"new", WhatJson(outcome.what, outcome.new_answer)},
          {"old", outcome.had_previous ? WhatJson(outcome.old_what, outcome.old_answer) : Json()},
          {"loader", options.loader},
          {"loader_runs_in", options.loader.empty() ? "" : fs::current_path().string()},
          {"loaded", outcome.what.Text()},
          {"model", ToString(bad.model)},
          {"crash", ModelText(bad.model)},
          {"after", bad.after},
          {"last_operation", bad.LastOperation()},
          {"lost", bad.lacks < 0 ? "nothing" : bad.lost},
          {"cause", group.cause},
          {"operations", std::move(operations)},
          {"expected", bad.Expected()},
          {"allowed", AllowedJson(bad)},
          {"seen", ToString(bad.outcome.loaded)},
          {"line", group.line},
          {"what", group.what},
          {"versions", outcome.versions},
          {"deadline_s", static_cast<double>(options.deadline.count()) / 1000}};
}

/// Of what a script writes by --json. A Python that fails exits with 1, too, and writes nothing.
bool TellsBad(const std::string& path) {
  std::ifstream file(path);
  const Json told = Json::parse(file, nullptr, false);
  return told.is_object() && told.value("bad", Json()) == Json(true);
}

Result<Script> WriteScript(const Options& options, const Outcome& outcome, size_t index,
                           const BadGroup& group, const std::string& folder) {
  const BadState& bad = outcome.report.bad[index];
  std::error_code error;
  if (!fs::create_directories(folder + "/state", error)) {
    return Failed(fmt::format("{}: {}", folder, error.message()));
  }
  SP_TRY(bad.disk.WriteTo(folder + "/state"));
  const std::string told = folder + "/told.json";
  const Json json = TellState(options, outcome, bad, group);
  std::ofstream(told) << json.dump(2, ' ', true, Json::error_handler_t::replace);
  SP_ASSIGN(const ProgramEnd written,
            RunProgram({options.python, "-B", options.package + "/_programs/_crash_script.py", told,
                        folder},
                       kWritePatience));
  fs::remove(told, error);
  if (!written.ok()) {
    return Internal(fmt::format("{}: writing the script: {}: {}", folder, written.how,
                                LastLine(written.error_tail)));
  }
  Script script{.bad = index, .path = folder + "/reproduce.py"};
  const std::string seen = folder + "/seen.json";
  SP_ASSIGN(const ProgramEnd ran, RunProgram({options.python, "-B", script.path, "--json", seen},
                                             2 * options.deadline + kRunPatience));
  script.is_seen = ran.exit == 1 && TellsBad(seen);
  fs::remove(seen, error);
  const std::string said = LastLine(ran.output);
  script.how = said.empty() ? ran.how : fmt::format("{}: {}", ran.how, said);
  return script;
}

}  // namespace

Result<std::vector<Script>> WriteScripts(const Options& options, const Outcome& outcome,
                                         const std::string& directory, const Progress& progress) {
  std::vector<Script> scripts;
  const auto chosen = Chosen(outcome, options.scripts_max);
  for (const auto& [index, group] : chosen) {
    progress(
        {fmt::format("writing and running scripts: {} of {}", scripts.size() + 1, chosen.size()),
         true});
    const std::string folder = fmt::format("{}/{:02}", directory, scripts.size() + 1);
    SP_ASSIGN(Script script, WriteScript(options, outcome, index, *group, folder));
    scripts.push_back(std::move(script));
  }
  return scripts;
}

}  // namespace shardproof::crashtest
