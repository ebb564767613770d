#include "verify/crashtest/crash_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/text/printable.h"

namespace shardproof::crashtest {
namespace {

using crash::BadState;
using crash::CrashModel;
using crash::Loaded;

constexpr size_t kGroupsShown = 8;
constexpr size_t kTextShown = 200;  // bytes of an error, or of what was lost
constexpr Loaded kOutcomes[] = {Loaded::kNew, Loaded::kOld, Loaded::kRefused, Loaded::kWrong};

/// "7 operations of 1 process: 2 create, 3 write, 2 sync_file".
std::string OperationsText(const Outcome& outcome) {
  std::map<std::string, int64_t> kinds;
  int64_t processes = 0;
  for (const crash::FileOperation& operation : outcome.operations) {
    ++kinds[ToString(operation.kind)];
    processes = std::max(processes, operation.rank + 1);
  }
  std::vector<std::string> parts;
  for (const auto& [kind, count] : kinds) parts.push_back(fmt::format("{} {}", count, kind));
  return fmt::format("{} of {}: {}", Plural(outcome.operations.size(), "operation"),
                     processes == 1 ? "1 process" : fmt::format("{} processes", processes),
                     fmt::join(parts, ", "));
}

std::string Shortened(const std::string& text) {
  if (text.size() <= kTextShown) return text;
  return text.substr(0, kTextShown) + " ...";
}

std::string NeedsText(CrashModel model) {
  switch (model) {
    case CrashModel::kKill:
      return "needs only a kill";
    case CrashModel::kExt4Ordered:
      return "needs a machine crash, on ext4";
    case CrashModel::kPosix:
      return "needs a machine crash, on some file system";
  }
  return "";
}

std::string Table(const Outcome& outcome) {
  std::string text = fmt::format("  {:<14}{:>9}{:>10}{:>8}{:>8}{:>9}{:>8}{:>8}\n", "model",
                                 "states", "distinct", "new", "old", "refused", "wrong", "bad");
  for (const auto& [model, counts] : outcome.models) {
    const auto count = [&, &outcomes = counts.outcomes](Loaded loaded) {
      const auto found = outcomes.find(loaded);
      return found == outcomes.end() ? 0 : found->second;
    };
    text += fmt::format("  {:<14}{:>9}{:>10}{:>8}{:>8}{:>9}{:>8}{:>8}\n", ToString(model),
                        counts.states.made, counts.states.distinct, count(Loaded::kNew),
                        count(Loaded::kOld), count(Loaded::kRefused), count(Loaded::kWrong),
                        counts.bad);
  }
  return text;
}

std::string GroupText(const Outcome& outcome, const BadGroup& group,
                      const std::vector<Script>& scripts) {
  const BadState& bad = outcome.report.bad[group.members.front()];
  std::string text = fmt::format(
      "\n  {}, {}, {}: {}\n    {}\n    smallest: after {} of {} operations; last {}; {}\n",
      group.what, NeedsText(group.model), Printable(group.cause),
      Plural(group.members.size(), "state"), Printable(Shortened(group.line)), bad.after,
      outcome.operations.size(), Printable(bad.LastOperation("process")),
      Printable(Shortened(bad.lost)));
  for (const Script& script : scripts) {
    if (script.bad != group.members.front()) continue;
    text += script.is_seen ? fmt::format("    shown by: {}\n", Printable(script.path))
                           : fmt::format("    not shown by {}: {}\n", Printable(script.path),
                                         Printable(script.how));
  }
  return text;
}

std::string Conclusion(const Outcome& outcome, const std::vector<Script>& scripts) {
  if (!outcome.inconclusive.empty()) {
    return "inconclusive: " + Printable(outcome.inconclusive) + "\n";
  }
  if (outcome.bad_count == 0) {
    return fmt::format("pass: each of {} distinct states loads as the new checkpoint{}\n",
                       outcome.report.states.distinct,
                       outcome.had_previous ? " or the previous one" : ", or is refused");
  }
  size_t seen = 0;
  for (const Script& script : scripts) seen += script.is_seen ? 1 : 0;
  const std::string shown = scripts.empty() ? "--report DIR writes scripts that show them"
                                            : fmt::format("{} of {} fail as described", seen,
                                                          Plural(scripts.size(), "script"));
  return fmt::format("\nfail: {} bad states of {}; the worst {}; {}\n", outcome.bad_count,
                     outcome.report.states.distinct, NeedsText(outcome.groups.front().model),
                     shown);
}

}  // namespace

std::string CommandText(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + ShellQuoted(word);
  return text;
}

std::string ModelText(CrashModel model) {
  switch (model) {
    case CrashModel::kKill:
      return "the processes are killed";
    case CrashModel::kExt4Ordered:
      return "the machine crashes, on ext4 with its default mount options";
    case CrashModel::kPosix:
      return "the machine crashes, on a file system that guarantees no more than POSIX does";
  }
  return "";
}

const char* VerdictOf(const Outcome& outcome) {
  if (outcome.bad_count > 0) return "fail";
  return outcome.inconclusive.empty() ? "pass" : "inconclusive";
}

std::string CrashText(const Options& options, const Outcome& outcome,
                      const std::vector<Script>& scripts) {
  std::string text =
      fmt::format("shardproof: crash states of: {}\n", Printable(CommandText(options.command)));
  for (const std::string& notice : outcome.notices) text += "  note: " + Printable(notice) + "\n";
  if (!outcome.operations.empty()) text += "  recorded " + OperationsText(outcome) + "\n";
  if (outcome.loads > 0) {
    text += "  loaded   " + Printable(outcome.what.Text());
    if (!outcome.had_previous) text += "; there was no previous checkpoint";
    if (outcome.had_previous && outcome.what != outcome.old_what) {
      text += "; before: " + Printable(outcome.old_what.Text());
    }
    text += fmt::format("; {} loads\n", outcome.loads);
    const int64_t points = static_cast<int64_t>(outcome.operations.size()) + 1;
    if (outcome.kill_points < points) {
      text += fmt::format(
          "  sampled {} of {} points at which the processes may be killed; --states N samples "
          "more\n",
          outcome.kill_points, points);
    }
    if (outcome.points < points) {
      text += fmt::format(
          "  sampled {} of {} points at which the machine may crash{}; --states N samples more\n",
          outcome.points, points,
          outcome.choices_max == INT64_MAX ? "" : ", and the losses at each");
    }
    text += "\n" + Table(outcome);
  }
  for (size_t i = 0; i < std::min(outcome.groups.size(), kGroupsShown); ++i) {
    text += GroupText(outcome, outcome.groups[i], scripts);
  }
  if (outcome.groups.size() > kGroupsShown) {
    text += fmt::format("\n  and {} more causes\n", outcome.groups.size() - kGroupsShown);
  }
  return text + Conclusion(outcome, scripts);
}

nlohmann::json CrashJson(const Options& options, const Outcome& outcome,
                         const std::vector<Script>& scripts) {
  using Json = nlohmann::json;
  Json json = {{"schema", 1},
               {"verdict", VerdictOf(outcome)},
               {"command", options.command},
               {"root", options.root},
               {"had_previous", outcome.had_previous},
               {"what", outcome.what.Json()},
               {"old_what", outcome.old_what.Json()},
               {"notices", outcome.notices},
               {"versions", outcome.versions},
               {"loads", outcome.loads},
               {"points", outcome.points},
               {"kill_points", outcome.kill_points},
               {"bad_count", outcome.bad_count},
               {"inconclusive", outcome.inconclusive},
               {"operations", Json::array()},
               {"models", Json::object()},
               {"groups", Json::array()}};
  for (const crash::FileOperation& operation : outcome.operations) {
    json["operations"].push_back(
        fmt::format("process {}: {}", operation.rank, Describe(operation)));
  }
  for (const auto& [model, counts] : outcome.models) {
    Json outcomes = Json::object();
    for (const Loaded loaded : kOutcomes) {
      const auto found = counts.outcomes.find(loaded);
      outcomes[ToString(loaded)] = found == counts.outcomes.end() ? 0 : found->second;
    }
    json["models"][ToString(model)] = {{"made", counts.states.made},
                                       {"distinct", counts.states.distinct},
                                       {"outcomes", outcomes},
                                       {"bad", counts.bad}};
  }
  for (const BadGroup& group : outcome.groups) {
    const BadState& bad = outcome.report.bad[group.members.front()];
    Json entry = {{"what", group.what},
                  {"needs", ToString(group.model)},
                  {"count", group.members.size()},
                  {"cause", group.cause},
                  {"line", group.line},
                  {"after", bad.after},
                  {"last_operation", bad.LastOperation()},
                  {"lost", bad.lost},
                  {"expected", bad.Expected()},
                  {"loaded", ToString(bad.outcome.loaded)},
                  {"scripts", Json::array()}};
    for (const Script& script : scripts) {
      if (std::find(group.members.begin(), group.members.end(), script.bad) ==
          group.members.end()) {
        continue;
      }
      entry["scripts"].push_back(
          {{"path", script.path}, {"seen", script.is_seen}, {"how", script.how}});
    }
    json["groups"].push_back(std::move(entry));
  }
  return json;
}

}  // namespace shardproof::crashtest
