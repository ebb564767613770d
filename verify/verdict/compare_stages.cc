#include "verify/verdict/compare_stages.h"

namespace shardproof {

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
    for (Finding& finding : CompareWithReplicas(comparison, expected, seen)) {
      findings.push_back(std::move(finding));
    }
  }
  return findings;
}

}  // namespace shardproof
