// loading.buffers_preserved: a buffer that has its value already keeps it through materialisation.
#include <algorithm>

#include "verify/verdict/expectation.h"
#include "verify/verdict/locate.h"
#include "verify/verdict/select.h"

namespace shardproof::loading::buffers_preserved {
namespace {

/// The value that the buffer had on this rank when the model was built; if it had none here, then
/// on the first rank that has one.
const Image* BuiltOn(const std::vector<Image>& built, int64_t rank) {
  const Image* first = nullptr;
  for (const Image& image : built) {
    if (!image.defined) continue;
    if (first == nullptr) first = &image;
    const std::vector<int64_t> ranks = image.Ranks();
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return &image;
  }
  return first;
}

void CheckIdentity(const PhaseEvidence& phase, const std::string& name, Judgement& judgement) {
  std::vector<int64_t> rebuilt;
  for (const RankEvidence& rank : phase.ranks) {
    const TensorDescriptor* built = FindTensor(rank, Stage::kBuilt, name).descriptor;
    const TensorDescriptor* ready = FindTensor(rank, Stage::kReady, name).descriptor;
    if (built == nullptr || ready == nullptr || built->identity < 0 || ready->identity < 0)
      continue;
    judgement.Compared();
    if (built->identity != ready->identity) rebuilt.push_back(rank.rank);
  }
  if (rebuilt.empty()) return;
  judgement.Found(FindingAt(phase, Stage::kReady, name, "rebuilt", rebuilt,
                            "the buffer is another object than at `built`",
                            {.against = {Against::What::kEarlier, phase.phase, Stage::kBuilt}}));
}

void CheckBuffer(const Evidence& evidence, const PhaseEvidence& phase, const std::string& stage,
                 const std::string& name, Judgement& judgement) {
  const Expectation expected = ExpectedOf(evidence.oracle, name);
  const bool from_source =
      expected.tensor != nullptr && expected.from.what == Against::What::kCheckpoint;
  const std::vector<Image> built = ImagesOf(phase, Stage::kBuilt, name);
  for (const Image& image : ImagesOf(phase, stage, name)) {
    const Image* before = from_source ? nullptr : BuiltOn(built, image.Ranks().front());
    if (!from_source && before == nullptr) continue;  // it got its value later: not this property's
    if (!image.unreadable.empty()) {
      NoteUnreadable(phase, stage, name, image.unreadable, judgement);
      continue;
    }
    judgement.Compared();
    const Against against =
        from_source ? expected.from : Against{Against::What::kEarlier, phase.phase, Stage::kBuilt};
    if (!image.defined) {
      judgement.Found(FindingAt(phase, stage, name, "clobbered", image.Ranks(),
                                from_source ? "the buffer did not get the checkpoint's value"
                                            : "the buffer had a value and no longer has one",
                                {.against = against}));
      continue;
    }
    const Comparison comparison{evidence, phase, stage, name, against, {}};
    auto finding = Compare(comparison, from_source ? ImageOf(*expected.tensor) : *before, image);
    if (!finding) continue;
    if (!from_source && finding->kind == "differs") finding->kind = "clobbered";
    judgement.Found(std::move(*finding));
  }
}

std::vector<std::string> Buffers(const PhaseEvidence& phase, const std::string& stage) {
  std::vector<std::string> names;
  for (const std::string& name : TensorNames(phase, stage)) {
    const bool is_buffer =
        std::any_of(phase.ranks.begin(), phase.ranks.end(), [&](const RankEvidence& rank) {
          const TensorDescriptor* descriptor = FindTensor(rank, stage, name).descriptor;
          return descriptor != nullptr && descriptor->kind == "buffer";
        });
    if (is_buffer) names.push_back(name);
  }
  return names;
}

/// A buffer with a value at `built` that no checkpoint supplies is bit-equal at `ready` and
/// `restored`, and the same object at `ready`; one that the checkpoint supplies equals it.
void Check(const Evidence& evidence, Judgement& judgement) {
  bool any = false;
  for (const PhaseEvidence* phase : LoadPhases(evidence, judgement)) {
    const std::vector<std::string> stages = FinalStages(*phase, judgement);
    // A resume may be recorded from `restored` on only: then no value at `built` is known.
    if (phase->facts().resumes ? !StageReached(*phase, Stage::kBuilt, judgement)
                               : !StageToJudge(*phase, Stage::kBuilt, judgement)) {
      continue;
    }
    for (const std::string& stage : stages) {
      for (const std::string& name : Buffers(*phase, stage)) {
        any = true;
        CheckBuffer(evidence, *phase, stage, name, judgement);
        if (stage == Stage::kReady && !evidence.WhyCannot("identity"))
          CheckIdentity(*phase, name, judgement);
      }
    }
  }
  judgement.Skipped(any ? "no buffer has a value at `built` or in the checkpoint"
                        : "the model has no buffer");
}

const PropertyRegistration kRegistration{{
    .id = "loading.buffers_preserved",
    .claim = "A buffer that already has its value keeps it: only meta tensors are "
             "materialised.",
    .reads = {{LoadingPhases(), {Stage::kBuilt, Stage::kReady, Stage::kRestored}}},
    .tolerance = "bit-exact: only meta tensors may be materialised, so nothing may write such a "
                 "buffer",
    .source = "NVIDIA/Megatron-LM#4155, huggingface/transformers#48932, "
              "nvidia-cosmos/cosmos-rl#411",
    .killed_by = {"loading.buffers_reallocated", "loading.to_empty_recurses"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::loading::buffers_preserved
