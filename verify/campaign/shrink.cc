#include "verify/campaign/shrink.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "verify/campaign/interruption.h"
#include "verify/generate/shrink.h"

namespace shardproof {

namespace {

/// The first of `simpler` that shows the signature, whichever worker is done first; nothing if none
/// does or the runs are used up.
Result<std::optional<size_t>> FirstThatShows(const std::vector<Case>& simpler,
                                             const Signature& signature, uint64_t runs_max,
                                             Workers& workers, uint64_t& runs,
                                             const std::function<void()>& progress) {
  std::optional<size_t> first;
  size_t given = 0;
  while (true) {
    while (!first && given < simpler.size() && runs < runs_max && workers.HasRoom()) {
      SP_TRY(workers.Give(given, CaseToJson(simpler[given]).dump()));
      ++given;
      ++runs;
    }
    if (workers.IsIdle() || Interruption::WasSeen()) return first;
    for (const CaseOutcome& outcome : workers.Collect(kPatience)) {
      if (!Shows(outcome, signature)) continue;
      if (!first || outcome.index < *first) first = outcome.index;
    }
    progress();
  }
}

}  // namespace

std::string Signature::Text() const {
  std::string text = fmt::format("{}, {}", property, kind);
  if (phase) text += fmt::format(", in phase {}", NameOf(*phase));
  if (!stage.empty()) text += fmt::format(" at `{}`", stage);
  if (!cause.empty()) text += fmt::format(", {}", cause);
  return text;
}

Signature SignatureOf(const FindingOutcome& finding) {
  return {finding.property, finding.kind, finding.phase, finding.stage, finding.cause};
}

bool Shows(const CaseOutcome& outcome, const Signature& signature) {
  return std::any_of(outcome.findings.begin(), outcome.findings.end(), [&](const auto& finding) {
    const Signature own = SignatureOf(finding);
    return own.property == signature.property && own.kind == signature.kind &&
           own.phase == signature.phase && own.stage == signature.stage &&
           own.cause == signature.cause;
  });
}

Result<Shrunk> Shrink(const Case& failing, const Signature& signature, uint64_t runs_max,
                      const SoakOptions& options) {
  SoakOptions narrow = options;
  // One property reads fewer phases than all: runs are shorter.
  narrow.properties = {signature.property};
  narrow.jobs = failing.subject == kReference ? options.jobs : 1;
  // How ranks end is seen from outside of their processes.
  const bool isolated = signature.property == "fault.every_rank_finishes";
  Shrunk shrunk{.test_case = failing};
  Workers workers = CaseWorkers(narrow, "shrink", isolated, failing.transport == "sim",
                                [](const std::string& order) { return ParseCaseText(order); });
  const Interruption interruption;
  while (!shrunk.is_smallest) {
    const std::vector<Case> simpler = SimplerCases(shrunk.test_case);
    SP_ASSIGN(const auto found,
              FirstThatShows(simpler, signature, runs_max, workers, shrunk.runs, [&] {
                if (options.shrink_progress) options.shrink_progress(shrunk.test_case, shrunk.runs);
              }));
    if (found) shrunk.test_case = simpler[*found];
    if (Interruption::WasSeen()) return shrunk;
    if (found) continue;
    if (shrunk.runs >= runs_max) return shrunk;
    shrunk.is_smallest = true;
  }
  return shrunk;
}

uint64_t ShrinkRunsFor(const std::string& subject) { return subject == kReference ? 500 : 60; }

}  // namespace shardproof
