// loading.efficient_equals_plain: the memory-saving path ends with the same model as the plain one.
#include <set>

#include "verify/verdict/expectation.h"
#include "verify/verdict/locate.h"
#include "verify/verdict/select.h"

namespace shardproof::loading::efficient_equals_plain {
namespace {

/// Whether every load draws its value anew: the checkpoint lacks it, and no formula gives it.
bool IsDrawn(const OracleRecord& oracle, const std::string& name) {
  return oracle.declared.contains(name) && !oracle.derived.contains(name) &&
         IsPersistent(oracle, name) && ExpectedOf(oracle, name).tensor == nullptr;
}

void CheckTensor(const Evidence& evidence, const PhaseEvidence& plain, const PhaseEvidence& values,
                 const std::string& name, Judgement& judgement) {
  const std::vector<Image> expected = DefinedImages(plain, Stage::kReady, name, judgement);
  const std::vector<Image> seen = DefinedImages(values, Stage::kReady, name, judgement);
  const bool in_plain = !ImagesOf(plain, Stage::kReady, name).empty();
  const bool in_values = !ImagesOf(values, Stage::kReady, name).empty();
  const Against against{Against::What::kPlain, Phase::kPlain, Stage::kReady};
  if (in_plain != in_values) {
    judgement.Compared();
    judgement.Found(FindingAt(values, Stage::kReady, name, "absent", {},
                              in_plain ? "phase plain has this tensor, phase values does not"
                                       : "phase values has this tensor, phase plain does not",
                              {.against = against}));
    return;
  }
  if (expected.empty()) return;
  judgement.Compared(seen.size());
  const Comparison comparison{evidence, values,  Stage::kReady,
                              name,     against, {Phase::kValues, Phase::kPlain}};
  for (Finding& finding : CompareAll(comparison, expected[0], seen)) {
    judgement.Found(std::move(finding));
  }
}

/// For every tensor the sum of its digests over a shard group is the same at `ready` of phase
/// values as at `ready` of phase plain, where every rank loads everything.
void Check(const Evidence& evidence, Judgement& judgement) {
  const PhaseEvidence* plain = PhaseToJudge(evidence, Phase::kPlain, judgement);
  if (plain == nullptr) return;
  const PhaseEvidence* values = PhaseToJudge(evidence, Phase::kValues, judgement);
  if (values == nullptr) return;
  if (!StageToJudge(*plain, Stage::kReady, judgement) ||
      !StageToJudge(*values, Stage::kReady, judgement))
    return;
  std::set<std::string> names;
  for (const PhaseEvidence* phase : {plain, values}) {
    for (const std::string& name : TensorNames(*phase, Stage::kReady)) names.insert(name);
  }
  for (const std::string& name : names) {
    if (!IsDrawn(evidence.oracle, name)) CheckTensor(evidence, *plain, *values, name, judgement);
  }
}

const PropertyRegistration kRegistration{{
    .id = "loading.efficient_equals_plain",
    .claim = "The memory-saving path ends with the same bits in every tensor as the plain "
             "path.",
    .reads = {{{Phase::kValues, Phase::kPlain}, {Stage::kReady}}},
    .tolerance = "bit-exact: both paths move the same bytes and run the same formulas on one "
                 "machine",
    .source = "areal-project/AReaL#1182, modelscope/twinkle memory_efficient_init",
    .killed_by = {"loading.efficient_skips_buffers", "loading.bf16_through_f16",
                  "loading.two_bytes_swapped"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::loading::efficient_equals_plain
