// loading.twin_equals_files: the plain twin, from which expectations are taken, holds what the
// files hold.
#include <fmt/format.h>

#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::loading::twin_equals_files {
namespace {

/// Every tensor of the twin's state dict is, bit for bit and in the model's dtype, what the
/// verifier's own reader makes of the files; nothing is on meta, and no buffer was left unfilled.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (!evidence.oracle.twin) {
    judgement.Skipped("the model is declared by the case or by a definition of the oracle's");
    return;
  }
  const TwinOracle& twin = *evidence.oracle.twin;
  if (!twin.why_none.empty()) {
    judgement.Skipped("there is no plain twin: " + twin.why_none);
    return;
  }
  judgement.Compared(twin.held);
  for (const TwinDeviation& one : twin.deviations) {
    judgement.Compared();
    Finding finding;
    finding.kind = one.kind;
    finding.failure_class = "input";
    finding.phase = Phase::kValues;
    finding.tensor = one.tensor;
    finding.facts.against = {Against::What::kCheckpoint};
    finding.message = fmt::format("{} {} ({})", one.tensor, one.what, twin.made_by);
    judgement.Found(std::move(finding));
  }
  if (!twin.unheld.empty()) {
    judgement.Inconclusive(
        fmt::format("{} tensors were not found in the bytes of the files: {}; their expected "
                    "values come from {} alone",
                    twin.unheld.size(), ListSome(twin.unheld), twin.made_by));
  }
}

const PropertyRegistration kRegistration{{
    .id = "loading.twin_equals_files",
    .claim = "The plain twin, which says what is expected of the subject's model, holds what the "
             "files hold.",
    .reads = {{{Phase::kValues}, {}, "the plain twin, the source checkpoint"}},
    .tolerance = "bit-exact: loading moves bytes, and rounds once where the model has another "
                 "floating-point dtype",
    .source = "the definition of an independent oracle",
    .killed_by = {"subject.plain_path_deviates"},
    .check = Check,
    .only_subjects = true,
}};

}  // namespace
}  // namespace shardproof::loading::twin_equals_files
