#include "verify/soak/shrink.h"

#include <algorithm>

#include <fmt/format.h>

#include "verify/case/shrink.h"

namespace shardproof {

std::string Signature::Text() const {
  std::string text = fmt::format("{}, {}", property, kind);
  if (!phase.empty()) text += fmt::format(", in phase {}", phase);
  if (!stage.empty()) text += fmt::format(" at `{}`", stage);
  if (!cause.empty()) text += fmt::format(", {}", cause);
  return text;
}

Signature SignatureOf(const FindingOutcome& finding) {
  std::string cause = finding.explanation.substr(0, finding.explanation.find_first_of(":0123456789"));
  while (!cause.empty() && cause.back() == ' ') cause.pop_back();
  return {finding.property, finding.kind, finding.phase, finding.stage, cause};
}

bool Shows(const CaseOutcome& outcome, const Signature& signature) {
  return std::any_of(outcome.findings.begin(), outcome.findings.end(), [&](const auto& finding) {
    const Signature own = SignatureOf(finding);
    return own.property == signature.property && own.kind == signature.kind &&
           own.phase == signature.phase && own.stage == signature.stage &&
           own.cause == signature.cause;
  });
}

Shrunk Shrink(const Case& failing, const Signature& signature, uint64_t runs_max,
              const std::function<CaseOutcome(const Case&)>& run) {
  Shrunk shrunk{.test_case = failing};
  while (!shrunk.is_smallest) {
    shrunk.is_smallest = true;
    for (const Case& simpler : SimplerCases(shrunk.test_case)) {
      if (shrunk.runs == runs_max) {
        shrunk.is_smallest = false;
        return shrunk;
      }
      ++shrunk.runs;
      if (!Shows(run(simpler), signature)) continue;
      shrunk.test_case = simpler;
      shrunk.is_smallest = false;
      break;
    }
  }
  return shrunk;
}

}  // namespace shardproof
