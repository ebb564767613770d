// checkpoint.reshard: a checkpoint restores to the same model on another mesh.
#include <fmt/format.h>

#include <set>

#include "verify/case/axes.h"
#include "verify/verdict/expectation.h"
#include "verify/verdict/locate.h"
#include "verify/verdict/select.h"

namespace shardproof::checkpoint::reshard {
namespace {

void CheckTensor(const Evidence& evidence, const PhaseEvidence& resume, const PhaseEvidence* values,
                 const std::string& name, Judgement& judgement) {
  const std::vector<Image> restored = DefinedImages(resume, Stage::kRestored, name, judgement);
  if (ImagesOf(resume, Stage::kRestored, name).empty()) {
    judgement.Compared();
    judgement.Found(FindingAt(resume, Stage::kRestored, name, "absent", {},
                              "phase values has this tensor, no rank has it here",
                              {.against = {Against::What::kStage, Phase::kValues, Stage::kReady}}));
    return;
  }
  const auto hold_against = [&](const Against& against, const Image& expected,
                                std::vector<Phase> capture_phases) {
    judgement.Compared(restored.size());
    const Comparison comparison{evidence, resume,  Stage::kRestored,
                                name,     against, std::move(capture_phases)};
    std::vector<Finding> findings = CompareAll(comparison, expected, restored);
    for (Finding& finding : findings) judgement.Found(std::move(finding));
    return findings.empty();
  };
  const Expectation expected = ExpectedOf(evidence.oracle, name);
  if (expected.tensor != nullptr &&
      !hold_against(expected.from, ImageOf(*expected.tensor), {resume.phase})) {
    return;  // what is wrong is said; that `ready` was right would only say it again
  }
  if (values == nullptr) return;
  const std::vector<Image> ready = DefinedImages(*values, Stage::kReady, name, judgement);
  if (!ready.empty()) {
    hold_against({Against::What::kStage, Phase::kValues, Stage::kReady}, ready[0],
                 {values->phase, resume.phase});
  }
}

/// full(restore(save(x, mesh A), mesh B)) == x for every tensor, bit for bit: the digest summed
/// over B's shard groups is that of the source and that of A's `ready`.
void Check(const Evidence& evidence, Judgement& judgement) {
  const PhaseEvidence* resume = PhaseToJudge(evidence, Phase::kResume, judgement);
  if (resume == nullptr) return;
  const int64_t world_size = RanksOf(evidence.test_case.resume_mesh);
  if (!evidence.test_case.resume_mesh.empty() && resume->WorldSize() != world_size) {
    judgement.Inconclusive(fmt::format("phase resume has {} ranks, the case's resume_mesh has {}",
                                       resume->WorldSize(), world_size));
  }
  const PhaseEvidence* values = PhaseToJudge(evidence, Phase::kValues, judgement);
  if (!StageToJudge(*resume, Stage::kRestored, judgement)) return;
  if (values != nullptr && !StageToJudge(*values, Stage::kReady, judgement)) values = nullptr;
  std::set<std::string> names;
  for (const std::string& name : TensorNames(*resume, Stage::kRestored)) names.insert(name);
  if (values != nullptr) {
    for (const std::string& name : TensorNames(*values, Stage::kReady)) names.insert(name);
  }
  for (const std::string& name : names) CheckTensor(evidence, *resume, values, name, judgement);
}

const PropertyRegistration kRegistration{{
    .id = "checkpoint.reshard",
    .claim = "A checkpoint restores to the same model, bit for bit, on another mesh.",
    .reads = {{{Phase::kResume}, {Stage::kRestored}}, {{Phase::kValues}, {Stage::kReady}}},
    .tolerance = "bit-exact: bytes move between ranks",
    .source = "pytorch/pytorch#103306, #136228; deepspeedai/DeepSpeed#1422",
    .killed_by = {"checkpoint.resume_uses_saved_offsets",
                  "sharding.floor_plus_remainder_on_restore"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::checkpoint::reshard
