#include "verify/verdict/compare_stages.h"

#include <fmt/format.h>

#include "verify/verdict/holders.h"

namespace shardproof {
namespace {

/// Whether ranks have other values in it, being statistics of other batches.
bool OfOwnBatches(const std::vector<Image>& replicas) {
  return WhyItVaries(replicas) == "batches" && CountOfFirst(replicas) < replicas.size();
}

/// The ranks of each tensor that goes by a name at both stages, if there are several: what ranks
/// have by themselves is held against what they had, not against what others had. Else empty.
std::vector<std::vector<int64_t>> SeveralOf(const PhaseEvidence& reference,
                                            const std::string& expected_key,
                                            const PhaseEvidence& phase, const std::string& key,
                                            const std::string& name) {
  auto several = HoldersOf(reference, expected_key, name).tensors;
  if (several.size() < 2 || HoldersOf(phase, key, name).tensors != several) return {};
  return several;
}

}  // namespace

std::vector<Finding> CompareStages(const Evidence& evidence, const PhaseEvidence& reference,
                                   const std::string& expected_key, const PhaseEvidence& phase,
                                   const std::string& key, Judgement& judgement) {
  std::vector<Finding> findings;
  const Against against{Against::What::kStage, reference.phase, expected_key};
  for (const std::string& name : TensorNames(reference, expected_key)) {
    const std::vector<Image> expected = DefinedImages(reference, expected_key, name, judgement);
    const std::vector<Image> seen = DefinedImages(phase, key, name, judgement);
    if (expected.empty()) continue;
    judgement.Compared(1 + seen.size());
    if (seen.empty()) {
      findings.push_back(FindingAt(phase, key, name, "absent", {},
                                   against.Words() + " has this tensor", {.against = against}));
      continue;
    }
    const Comparison comparison{evidence, phase,   key,
                                name,     against, {reference.phase, phase.phase}};
    const auto several = SeveralOf(reference, expected_key, phase, key, name);
    std::vector<Finding> found;
    if (several.empty()) found = CompareWithReplicas(comparison, expected, seen);
    for (const std::vector<int64_t>& ranks : several) {
      const std::vector<Image> own = ReplicasOf(ranks, expected);
      if (own.empty()) continue;
      for (Finding& each : CompareWithReplicas(comparison, own, ReplicasOf(ranks, seen)))
        found.push_back(std::move(each));
    }
    if (!found.empty() && OfOwnBatches(expected)) {
      judgement.NotCompared(fmt::format(
          "{} at `{}` was not compared with `{}`: statistics of each rank's own batches, of which "
          "those of one rank may have been restored on all",
          name, key, expected_key));
      continue;
    }
    for (Finding& finding : found) findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace shardproof
