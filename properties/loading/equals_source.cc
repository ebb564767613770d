// loading.equals_source: what the checkpoint holds is what the model holds, bit for bit.
#include <algorithm>
#include <map>
#include <set>

#include "verify/verdict/expectation.h"
#include "verify/verdict/locate.h"
#include "verify/verdict/select.h"

namespace shardproof::loading::equals_source {
namespace {

/// From a key of the files; or from what the plain path makes of them, where no key by itself is
/// it.
bool ComesFromSource(const Evidence& evidence, const std::string& name, Expectation& expected) {
  expected = ExpectedOf(evidence.oracle, name);
  if (expected.tensor == nullptr) return false;
  return expected.from.what == Against::What::kCheckpoint ||
         (expected.from.what == Against::What::kTwin && IsPersistent(evidence.oracle, name));
}

/// Compares one tensor at one stage. What already differed, in the same way, at an earlier stage is
/// added to that finding's first line: the earliest stage is where to look.
class SourceCheck {
 public:
  SourceCheck(const Evidence& evidence, const PhaseEvidence& phase, Judgement& judgement)
      : evidence_(evidence), phase_(phase), judgement_(judgement) {}

  void CheckTensor(const StageKey& stage, const std::string& name, bool must_be_defined) {
    Expectation expected;
    if (!ComesFromSource(evidence_, name, expected)) return;
    Judgement ignored;  // at `loaded` most ranks have nothing yet, and rightly so
    const std::vector<Image> images = DefinedImages(
        phase_, stage, name, must_be_defined ? judgement_ : ignored, Undefined::kFinding);
    judgement_.Compared(images.size());
    const Comparison comparison{evidence_, phase_, stage, name, expected.from, {}};
    for (Finding& finding : CompareAll(comparison, ImageOf(*expected.tensor), images)) {
      Keep(std::move(finding));
    }
  }

  void Report() {
    for (Finding& finding : findings_) {
      const auto& later = later_stages_[finding.tensor];
      if (!later.empty()) finding.message += "; still so at " + later;
      judgement_.Found(std::move(finding));
    }
  }

 private:
  void Keep(Finding finding) {
    for (const Finding& earlier : findings_) {
      if (earlier.tensor != finding.tensor || earlier.kind != finding.kind) continue;
      if (earlier.index != finding.index || earlier.seen != finding.seen) continue;
      std::string& later = later_stages_[finding.tensor];
      const std::string quoted = "`" + finding.stage + "`";
      if (later.find(quoted) == std::string::npos) later += (later.empty() ? "" : ", ") + quoted;
      return;
    }
    findings_.push_back(std::move(finding));
  }

  const Evidence& evidence_;
  const PhaseEvidence& phase_;
  Judgement& judgement_;
  std::vector<Finding> findings_;
  std::map<std::string, std::string> later_stages_;
};

/// Whether the case lets the checkpoint lack every tensor that a checkpoint could hold.
bool FromScratch(const OracleRecord& oracle) {
  const std::set<std::string> may_lack(oracle.missing_allowed.begin(),
                                       oracle.missing_allowed.end());
  return !oracle.declared.empty() &&
         std::all_of(oracle.declared.begin(), oracle.declared.end(), [&](const auto& declared) {
           return !IsPersistent(oracle, declared.first) ||
                  (may_lack.contains(declared.first) &&
                   !oracle.source.tensors.contains(declared.first));
         });
}

/// digest(tensor on every replica) == digest(tensor in the checkpoint), with dtype and shape,
/// at `loaded` where content is defined, at `ready` and, if no steps were taken, at `restored`.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (!evidence.oracle.source.error.empty()) {
    judgement.Inconclusive("the source cannot be read: " + evidence.oracle.source.error);
    return;
  }
  if (FromScratch(evidence.oracle)) {
    judgement.Skipped("from scratch: no tensor of the model comes from the checkpoint");
    return;
  }
  for (const PhaseEvidence* phase : LoadPhases(evidence, judgement)) {
    SourceCheck check(evidence, *phase, judgement);
    if (StageReached(*phase, Stage::kLoaded, judgement)) {
      for (const std::string& name : TensorNames(*phase, Stage::kLoaded)) {
        check.CheckTensor(Stage::kLoaded, name, false);
      }
    }
    for (const std::string& stage : FinalStages(*phase, judgement)) {
      for (const std::string& name : TensorNames(*phase, stage)) {
        check.CheckTensor(stage, name, true);
      }
    }
    check.Report();
  }
  for (const PhaseEvidence* phase : TrainPhases(evidence)) {
    if (!phase->facts().trains) continue;
    SourceCheck check(evidence, *phase, judgement);
    for (const std::string& name : TensorNames(*phase, Stage::kReady)) {
      check.CheckTensor(Stage::kReady, name, true);
    }
    check.Report();
  }
}

const PropertyRegistration kRegistration{{
    .id = "loading.equals_source",
    .claim = "The model holds the values of the checkpoint, bit for bit, on every replica.",
    .reads = {{LoadingPhases(), {Stage::kLoaded, Stage::kReady, Stage::kRestored}},
              {{Phase::kTrain, Phase::kAgain, Phase::kTrainOnDevice}, {Stage::kReady}}},
    .tolerance = "bit-exact: loading moves bytes and does no arithmetic",
    .source = "facebookresearch/metaseq#254, pytorch/pytorch#187138; the safetensors format",
    .killed_by = {"loading.last_block_skipped", "loading.bf16_through_f16",
                  "loading.two_bytes_swapped", "sharding.shards_swapped",
                  "loading.filled_in_memory_order"},
    .check = Check,
}};

}  // namespace
}  // namespace shardproof::loading::equals_source
