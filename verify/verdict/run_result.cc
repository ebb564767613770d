#include "verify/verdict/run_result.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "src/text/printable.h"

namespace shardproof {
namespace {

Compared WhatWasCompared(const Evidence& evidence, const std::vector<PropertyResult>& properties) {
  Compared compared;
  std::set<std::string> hosts;
  for (const PropertyResult& property : properties) {
    compared.comparisons += property.judgement.comparisons();
  }
  for (const PhaseEvidence& phase : evidence.phases) {
    if (!phase.skipped.empty()) {
      compared.skipped.push_back({phase.phase, phase.skipped});
      continue;
    }
    compared.phases.push_back(phase.phase);
    if (compared.ranks == 0) {
      compared.ranks = phase.WorldSize();
      compared.held = CountHeld(phase, NameOf(Stage::kReady));
    }
    for (const RankEvidence& rank : phase.ranks) {
      if (!rank.host.empty()) hosts.insert(rank.host);
      for (const StageRecord& stage : rank.stages) {
        const auto& known = compared.stages;
        const std::string key = stage.Key();
        if (stage.complete && std::find(known.begin(), known.end(), key) == known.end()) {
          compared.stages.push_back(key);
        }
      }
    }
  }
  compared.hosts = static_cast<int64_t>(hosts.size());
  return compared;
}

template <typename One, typename All>
size_t PlaceOf(const One& one, const std::vector<All>& all) {
  return static_cast<size_t>(std::find(all.begin(), all.end(), one) - all.begin());
}

}  // namespace

std::vector<const Finding*> RunResult::Findings() const {
  std::vector<const Finding*> findings;
  for (const PropertyResult& property : properties) {
    for (const Finding& finding : property.judgement.findings()) findings.push_back(&finding);
  }
  const auto age = [this](const Finding* finding) {
    // What is wrong with the input comes before what may follow from it.
    return std::tuple(IsKnown(*finding), finding->failure_class != "input",
                      PlaceOf(finding->phase, compared.phases), finding->is_consequence,
                      PlaceOf(finding->stage, compared.stages), finding->explanation.empty());
  };
  std::stable_sort(findings.begin(), findings.end(),
                   [&](const Finding* a, const Finding* b) { return age(a) < age(b); });
  return findings;
}

bool RunResult::IsKnown(const Finding& finding) const {
  if (gate.known.empty()) return false;
  const auto known = gate.known.find(finding.Fingerprint());
  return known != gate.known.end() && !known->second.is_expired;
}

size_t RunResult::FindingCount() const {
  size_t count = 0;
  for (const PropertyResult& property : properties) count += property.judgement.FindingCount();
  return count;
}

int ExitCodeOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return 0;
    case Verdict::kFail:
      return 1;
    case Verdict::kInconclusive:
      return 3;
    case Verdict::kSkip:
      return 77;
  }
  return 5;
}

RunResult MakeRunResult(const Evidence& evidence, std::vector<PropertyResult> properties,
                        const std::string& evidence_directory) {
  RunResult result;
  result.test_case = evidence.test_case;
  result.compared = WhatWasCompared(evidence, properties);
  result.memory = MemoryByStage(evidence);
  if (result.test_case.subject != kReference) result.loading_memory = MemoryOfLoading(evidence);
  result.verdict = properties.empty() ? Verdict::kInconclusive : Verdict::kSkip;
  for (const PropertyResult& property : properties) {
    result.verdict = Worse(result.verdict, property.judgement.verdict());
  }
  result.exit_code = ExitCodeOf(result.verdict);
  result.properties = std::move(properties);
  result.tensor_count = evidence.oracle.declared.empty() ? evidence.test_case.model.tensors.size()
                                                         : evidence.oracle.declared.size();
  result.evidence_directory = evidence_directory;
  result.next_command = "shardproof replay " + ShellQuoted(evidence_directory);
  return result;
}

}  // namespace shardproof
