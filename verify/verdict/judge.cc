// Runs properties over evidence. Whatever a property does, it gets a result: one that throws is
// inconclusive with the exception's text.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <set>
#include <tuple>

#include "verify/verdict/property.h"
#include "verify/verdict/scope.h"

namespace shardproof {
namespace {

/// Fills in what a property need not repeat in each finding.
void Complete(const Property& property, const Evidence& evidence, Finding& finding) {
  finding.property = property.id;
  const PhaseEvidence* phase = finding.phase ? evidence.Phase(*finding.phase) : nullptr;
  if (phase == nullptr) return;
  if (finding.world_size == 0) finding.world_size = phase->WorldSize();
  if (finding.hosts.empty()) finding.hosts = HostsOf(*phase, finding.ranks);
  if (!finding.tensor.empty() && !finding.stage.empty() && !finding.ranks.empty()) {
    finding.held = FindHeldIn(*phase, finding.stage, finding.tensor, finding.ranks.front());
  }
}

/// What two findings must have in common to be one finding on several ranks.
auto Essence(const Finding& finding) {
  return std::tie(finding.kind, finding.phase, finding.stage, finding.tensor, finding.index,
                  finding.expected, finding.seen, finding.differing, finding.explanation);
}

/// Makes one finding of those that say the same about the same tensor on different ranks.
std::vector<Finding> Merged(std::vector<Finding> findings, const Evidence& evidence) {
  std::vector<Finding> merged;
  std::map<decltype(Essence(findings[0])), size_t> places;  // keys refer to `findings`
  std::vector<bool> grown;
  for (const Finding& finding : findings) {
    const auto [place, is_new] = places.emplace(Essence(finding), merged.size());
    // Without a value seen, only the first lines could tell two findings apart.
    if (is_new || finding.seen.empty()) {
      merged.push_back(finding);
      grown.push_back(false);
      continue;
    }
    Finding& first = merged[place->second];
    first.ranks.insert(first.ranks.end(), finding.ranks.begin(), finding.ranks.end());
    first.wanted.insert(first.wanted.end(), finding.wanted.begin(), finding.wanted.end());
    grown[place->second] = true;
  }
  for (size_t i = 0; i < merged.size(); ++i) {
    if (!grown[i] || !merged[i].phase) continue;
    const PhaseEvidence* phase = evidence.Phase(*merged[i].phase);
    merged[i].ranks = Sorted(std::move(merged[i].ranks));
    if (phase != nullptr) merged[i].message += "; alike on " + ScopeLine(*phase, merged[i].ranks);
  }
  return merged;
}

void Cap(Judgement& judgement) {
  judgement.KeepFindings(kFindingCountMax);
  const size_t more = judgement.FindingCount() - judgement.findings().size();
  if (more == 0) return;
  judgement.findings().back().message +=
      fmt::format(" (and {} more findings of this property)", more);
}

/// Why what a phase shows says nothing about the subject, or empty: ranks that lack what they
/// import cannot run it.
std::string WhyNothingShows(const PhaseEvidence& phase) {
  std::vector<int64_t> ranks;
  std::string what;
  for (const RankEvidence& rank : phase.ranks) {
    for (const ErrorRecord& error : rank.errors) {
      if (error.code != "environment") continue;
      if (ranks.empty()) what = error.message;
      ranks.push_back(rank.rank);
    }
  }
  if (ranks.empty()) return "";
  return fmt::format(
      "the subject's environment is incomplete, in phase {} on {}: {} (class infrastructure)",
      phase.name(), ScopeLine(phase, Sorted(ranks)), what);
}

/// Judges what phases show that could run. \returns whether the first one could.
bool SetAside(const Property& property, const Evidence& evidence, Judgement& judgement) {
  for (const PhaseEvidence& phase : evidence.phases) {
    const bool is_first = &phase == &evidence.phases.front();
    if (!is_first && !property.Reads(phase.phase)) continue;
    const std::string why = WhyNothingShows(phase);
    if (why.empty()) continue;
    judgement.Inconclusive(why);
    if (is_first) return false;
  }
  return true;
}

std::string CannotText(const std::string& capability, const std::string& why) {
  return fmt::format("the subject cannot: {} ({})", capability, why);
}

PropertyResult JudgeOne(const Property& property, const Evidence& evidence) {
  PropertyResult result{property.id, {}};
  if (evidence.test_case.as_stated && !property.id.starts_with("fault.")) {
    result.judgement.Skipped("only the handling of the faults is judged (--judge-faults)");
    return result;
  }
  if (!SetAside(property, evidence, result.judgement)) return result;
  for (const std::string& capability : property.capabilities) {
    const std::string* why = evidence.WhyCannot(capability);
    if (why == nullptr) continue;
    result.judgement.Skipped(CannotText(capability, *why));
    return result;
  }
  try {
    property.check(evidence, result.judgement);
  } catch (const std::exception& error) {
    result.judgement.Inconclusive(
        fmt::format("the check ended with an exception: {}", error.what()));
  } catch (...) {
    result.judgement.Inconclusive("the check ended with an exception of an unknown type");
  }
  std::vector<Finding>& findings = result.judgement.findings();
  std::erase_if(findings, [&](const Finding& finding) {
    const PhaseEvidence* phase = finding.phase ? evidence.Phase(*finding.phase) : nullptr;
    return phase != nullptr && !WhyNothingShows(*phase).empty();
  });
  findings = Merged(std::move(findings), evidence);
  Cap(result.judgement);
  for (Finding& finding : findings) Complete(property, evidence, finding);
  return result;
}

PropertyResult Unknown(const std::string& id) {
  PropertyResult result{id, {}};
  const auto selected = SelectProperties({id});
  result.judgement.Inconclusive(selected.ok() ? "not judged" : selected.error().message);
  return result;
}

}  // namespace

std::vector<PropertyResult> Judge(const Evidence& evidence, const std::vector<std::string>& ids) {
  const std::vector<Property>& all = AllProperties();
  std::map<std::string, const Property*> wanted;  // null: not known
  for (const std::string& id : ids) wanted[id] = nullptr;
  for (const Property& property : all) {
    if (ids.empty() || wanted.contains(property.id)) wanted[property.id] = &property;
  }
  std::vector<PropertyResult> results;
  for (const auto& [id, property] : wanted) {
    results.push_back(property == nullptr ? Unknown(id) : JudgeOne(*property, evidence));
  }
  return results;
}

Verdict WorstVerdict(const std::vector<PropertyResult>& results) {
  if (results.empty()) return Verdict::kInconclusive;
  Verdict worst = Verdict::kSkip;
  for (const PropertyResult& result : results) worst = Worse(worst, result.judgement.verdict());
  return worst;
}

std::vector<CaptureRequest> WantedCaptures(const std::vector<PropertyResult>& results) {
  std::vector<CaptureRequest> captures;
  std::set<std::tuple<Phase, std::string, uint64_t, uint64_t>> seen;
  for (const PropertyResult& result : results) {
    for (const Finding& finding : result.judgement.findings()) {
      for (const CaptureRequest& want : finding.wanted) {
        if (seen.insert({want.phase, want.tensor, want.byte_start, want.byte_length}).second) {
          captures.push_back(want);
        }
      }
    }
  }
  return captures;
}

}  // namespace shardproof
