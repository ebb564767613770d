// memory.no_page_commit: placeholders commit no pages.
#include <fmt/format.h>

#include "verify/verdict/select.h"

namespace shardproof::memory::no_page_commit {
namespace {

/// A storage shares its first and its last page with what lies beside it in the heap, which may
/// have been written; so up to that many pages say nothing about the tensor.
constexpr uint64_t kCommittedBytesMax = 2 * 4096;

/// Smaller storages come from the heap, where memory that was used before and freed is still
/// committed; from this size on malloc maps fresh pages (its default threshold).
constexpr uint64_t kHeapBytesMax = 128 << 10;

/// \returns whether the state could be judged, or need not be.
bool CheckState(const RankEvidence& rank, const std::string& name, const TensorState& state,
                FindingsByRank& findings, Judgement& judgement) {
  if (!state.committed_bytes) {
    // What is on meta has no storage that could be committed.
    if (state.is_meta) judgement.Compared();
    return state.is_meta;
  }
  if (state.storage_bytes.value_or(kHeapBytesMax) < kHeapBytesMax) return true;
  judgement.Compared();
  if (*state.committed_bytes > kCommittedBytesMax) {
    const std::string size = state.storage_bytes ? fmt::format(" of {}", *state.storage_bytes) : "";
    findings.Add(name, "committed",
                 fmt::format("{} bytes{} are committed for a tensor that has no value yet",
                             *state.committed_bytes, size),
                 {rank.rank}, {.limit_bytes = kCommittedBytesMax});
  }
  return true;
}

void CheckStage(const PhaseEvidence& phase, Stage stage, Judgement& judgement) {
  FindingsByRank findings(phase, stage);
  for (const RankEvidence& rank : phase.ranks) {
    const StageRecord* record = rank.Stage(stage);
    if (record == nullptr) continue;
    for (const auto& [name, state] : record->tensors) {
      if (state.content == Content::kDefined) continue;
      // An empty shard has nothing to commit.
      if (!state.is_meta && rank.Descriptor(state).OwnedElements() == 0) continue;
      if (CheckState(rank, name, state, findings, judgement)) continue;
      judgement.Inconclusive(fmt::format("rank {} did not record the committed pages of {} at `{}`",
                                         rank.rank, name, NameOf(stage)));
    }
  }
  findings.Report(judgement);
}

/// At `built`, `loaded`, `sharded` and `materialized` a tensor without a value has no committed
/// pages.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (evidence.test_case.device != "cpu") {
    judgement.Skipped(
        "placeholders are in a device's memory, whose pages the kernel does not count");
    return;
  }
  const PhaseEvidence* phase = PhaseToJudge(evidence, Phase::kMemory, judgement);
  if (phase == nullptr) return;
  bool any = false;
  for (const Stage stage : {Stage::kBuilt, Stage::kLoaded, Stage::kSharded, Stage::kMaterialized}) {
    if (!StageReached(*phase, stage, judgement)) continue;
    any = true;
    CheckStage(*phase, stage, judgement);
  }
  if (!any) {
    judgement.Inconclusive("no rank of phase memory reached a stage before `ready`");
  }
  judgement.Skipped("every tensor of 128 KiB or more has its value before `ready`");
}

const PropertyRegistration kRegistration{{
    .id = "memory.no_page_commit",
    .claim = "A tensor that has no value yet commits no pages.",
    .reads = {{{Phase::kMemory},
               {Stage::kBuilt, Stage::kLoaded, Stage::kSharded, Stage::kMaterialized}}},
    .tolerance = "8192 bytes a tensor: the first and the last page are shared with neighbours; "
                 "storages below 128 KiB are not judged, since the heap reuses pages that are "
                 "committed",
    .source = "huggingface/transformers#45649, modelscope/ms-swift#9982",
    .killed_by = {"memory.placeholders_zeroed", "memory.materialize_zero_fills",
                  "subject.zeros_before_loading"},
    .check = Check,
    .judged_on = JudgedOn::kHost,
}};

}  // namespace
}  // namespace shardproof::memory::no_page_commit
