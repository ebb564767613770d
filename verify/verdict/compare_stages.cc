#include "verify/verdict/compare_stages.h"

#include <fmt/format.h>

namespace shardproof {
namespace {

/// Whether ranks have other values in it, being statistics of other batches.
bool OfOwnBatches(const std::vector<Image>& replicas) {
  return WhyItVaries(replicas) == "batches" && CountOfFirst(replicas) < replicas.size();
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
    std::vector<Finding> found = CompareWithReplicas(comparison, expected, seen);
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
