#include "verify/campaign/adequacy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "src/text/printable.h"
#include "verify/campaign/interruption.h"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr uint64_t kStep = 32;  ///< cases between two looks at how far it is
constexpr uint64_t kLargeStep = 4;
constexpr uint64_t kLargeCasesMax = 40;
constexpr uint64_t kLargeRunsMax = 60;  ///< to shrink one: each takes a second
constexpr size_t kKindsTried = 3;

/// Whether no property that must see the bug reads anything but what a memory run leaves.
bool NeedsMemoryRuns(const PlantedBug& bug) {
  const auto selected = SelectProperties(bug.killed_by);
  if (!selected.ok()) return false;
  return std::all_of(selected.value().begin(), selected.value().end(),
                     [](const Property* property) {
                       return property->Reads(Phase::kMemory) && !property->Reads(Phase::kValues);
                     });
}

/// Whether one of them reads what simulated ranks do not leave.
bool NeedsProcesses(const PlantedBug& bug) {
  const auto selected = SelectProperties(bug.killed_by);
  if (!selected.ok()) return false;
  return std::any_of(selected.value().begin(), selected.value().end(),
                     [](const Property* property) { return property->needs_processes; });
}

/// Runs the bug's cases, until `enough`; summed up in `summary`. Ends early if it is interrupted.
template <typename Enough>
Status RunCases(SoakOptions soak, uint64_t step, uint64_t cases_max, SoakSummary& summary,
                Enough enough) {
  for (uint64_t cases = 0; cases < cases_max && !enough();) {
    cases = std::min(cases + step, cases_max);
    soak.cases = cases;
    SP_ASSIGN(const SoakEnd end, Soak(soak, summary));
    if (end == SoakEnd::kSignal) break;
  }
  return Ok();
}

Catch CatchOf(const SoakSummary& summary, const std::string& property) {
  const auto tally = summary.properties.find(property);
  if (tally == summary.properties.end()) return {};
  return {tally->second.failed, tally->second.first_failed};
}

bool IsSmall(const Case& c) { return c.WorldSize() <= 2 && c.model.tensors.size() <= 2; }

int64_t SizeOf(const Case& c) {
  return c.WorldSize() + static_cast<int64_t>(c.model.tensors.size());
}

/// Shrinks one failing case of each kind, until one is small, and keeps the smallest.
Status KeepSmallest(const std::vector<FailedCase>& failures, uint64_t runs_max,
                    const AdequacyOptions& options, const SoakOptions& soak,
                    BugAdequacy& measured) {
  std::set<std::string> tried;
  for (const FailedCase& failed : failures) {
    if (measured.smallest && IsSmall(measured.smallest->test_case)) return Ok();
    if (options.shrink_runs == 0 || tried.size() == kKindsTried) return Ok();
    const Signature signature = SignatureOf(failed.outcome.findings.at(0));
    if (!tried.insert(signature.Text()).second) continue;
    SP_ASSIGN(Shrunk shrunk,
              Shrink(failed.test_case, signature, std::min(runs_max, options.shrink_runs), soak));
    if (measured.smallest && SizeOf(measured.smallest->test_case) <= SizeOf(shrunk.test_case))
      continue;
    measured.smallest = std::move(shrunk);
    measured.how = signature.Text();
  }
  return Ok();
}

}  // namespace

bool BugAdequacy::IsCaught() const {
  return !alone.empty() && std::all_of(alone.begin(), alone.end(), [&](const auto& named) {
    const auto seen = together.find(named.first);
    return named.second.cases > 0 && seen != together.end() && seen->second.cases > 0;
  });
}

Result<std::optional<BugAdequacy>> MeasureBug(const PlantedBug& bug,
                                              const AdequacyOptions& options) {
  const bool large = NeedsMemoryRuns(bug);
  SoakOptions soak = options.soak;
  soak.bug = bug.id;
  soak.keep_going = true;
  soak.generate.large = large;
  soak.generate.transport = large || NeedsProcesses(bug) ? "gloo" : "sim";
  if (large) {
    soak.generate.world_max = 3;
    soak.jobs = 1;  // beside another case, its peaks would not be its own
    soak.properties = bug.killed_by;
  }
  const uint64_t step = large ? kLargeStep : kStep;
  const uint64_t cases_max =
      large ? std::min(options.cases_max, kLargeCasesMax) : options.cases_max;
  const uint64_t catches = large ? 1 : options.catches;

  BugAdequacy measured{.bug = bug.id, .transport = soak.generate.transport};
  SoakSummary together;
  SP_TRY(RunCases(soak, step, cases_max, together, [&] {
    return std::all_of(bug.killed_by.begin(), bug.killed_by.end(),
                       [&](const auto& id) { return CatchOf(together, id).cases >= catches; });
  }));
  if (Interruption::WasSeen()) return std::optional<BugAdequacy>();
  measured.cases = together.cases();
  measured.pointless = together.inconclusive + together.passed;
  for (const auto& [id, tally] : together.properties) {
    if (tally.failed > 0) measured.together[id] = CatchOf(together, id);
  }
  for (const std::string& id : bug.killed_by) {
    soak.properties = {id};
    SoakSummary alone;
    SP_TRY(RunCases(soak, step, measured.cases, alone,
                    [&] { return CatchOf(alone, id).cases >= catches; }));
    measured.alone[id] = CatchOf(alone, id);
    SP_TRY(
        KeepSmallest(alone.failures, large ? kLargeRunsMax : UINT64_MAX, options, soak, measured));
    if (Interruption::WasSeen()) return std::optional<BugAdequacy>();
  }
  return std::optional(std::move(measured));
}

json AdequacyToJson(const std::vector<BugAdequacy>& bugs) {
  const auto catches = [](const std::map<std::string, Catch>& of) {
    json out = json::object();
    for (const auto& [id, caught] : of) {
      out[id] = {{"cases", caught.cases}};
      if (caught.first) out[id]["first"] = *caught.first;
    }
    return out;
  };
  json out = json::object();
  for (const BugAdequacy& bug : bugs) {
    json& entry = out[bug.bug];
    entry = {{"caught", bug.IsCaught()},
             {"transport", bug.transport},
             {"cases", bug.cases},
             {"cases_without_effect", bug.pointless},
             {"together", catches(bug.together)},
             {"alone", catches(bug.alone)}};
    if (!bug.smallest) continue;
    entry["smallest"] = {{"case", CaseToJson(bug.smallest->test_case)},
                         {"runs", bug.smallest->runs},
                         {"no_simpler_one", bug.smallest->is_smallest},
                         {"shows", bug.how}};
  }
  return out;
}

std::string AdequacyLine(const BugAdequacy& bug) {
  std::vector<std::string> named;
  for (const auto& [id, alone] : bug.alone) {
    const auto seen = bug.together.find(id);
    const uint64_t cases = seen == bug.together.end() ? 0 : seen->second.cases;
    named.push_back(alone.first ? fmt::format("{} {} (alone {}, first in case {})", id, cases,
                                              alone.cases, *alone.first)
                                : fmt::format("{} {} (alone never)", id, cases));
  }
  std::string line =
      fmt::format("{:<9} {:<46} {:>4} cases: {}", bug.IsCaught() ? "caught" : "NOT SEEN", bug.bug,
                  bug.cases, fmt::join(named, ", "));
  if (!bug.smallest) return line;
  const Case& c = bug.smallest->test_case;
  return line + fmt::format("; smallest {}, {} after {} runs",
                            Plural(static_cast<uint64_t>(c.WorldSize()), "rank"),
                            Plural(c.model.tensors.size(), "tensor"), bug.smallest->runs);
}

std::string AdequacyTable(const std::vector<BugAdequacy>& bugs) {
  std::set<std::string> columns;
  for (const BugAdequacy& bug : bugs) {
    for (const auto& [id, caught] : bug.together) columns.insert(id);
  }
  std::string text = "cases in which each property caught each bug; *: must catch it\n";
  size_t number = 0;
  for (const std::string& id : columns) text += fmt::format("  {:>2} {}\n", ++number, id);
  text += fmt::format("{:<46}", "");
  for (size_t i = 1; i <= columns.size(); ++i) text += fmt::format("{:>5} ", i);
  for (const BugAdequacy& bug : bugs) {
    text += fmt::format("\n{:<46}", bug.bug);
    for (const std::string& id : columns) {
      const auto caught = bug.together.find(id);
      const std::string count =
          caught == bug.together.end() ? "." : std::to_string(caught->second.cases);
      text += fmt::format("{:>5}{}", count, bug.alone.contains(id) ? "*" : " ");
    }
  }
  const auto all =
      std::count_if(bugs.begin(), bugs.end(), [](const auto& b) { return b.IsCaught(); });
  text += fmt::format(
      "\n{} of {} bugs are caught by every property that must catch them, also on its own\n", all,
      bugs.size());
  for (const BugAdequacy& bug : bugs) {
    if (!bug.IsCaught()) text += fmt::format("not caught: {}\n", bug.bug);
  }
  return text;
}

}  // namespace shardproof
