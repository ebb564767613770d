// checkpoint.training_files: what a training job saves is on disk what it was in memory.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "verify/verdict/expectation.h"
#include "verify/verdict/locate.h"
#include "verify/verdict/select.h"

namespace shardproof::checkpoint::training_files {
namespace {

/// Numbers that the training loop keeps beside the optimizer.
bool IsOfLoop(const std::string& name) {
  return name == "sampler.position" || name == "scaler.scale" || name == "scaler.growth_tracker";
}

class FilesCheck {
 public:
  FilesCheck(const Evidence& evidence, const PhaseEvidence& phase, const CheckpointRecord& saved,
             Judgement& judgement)
      : evidence_(evidence), phase_(phase), saved_(saved), judgement_(judgement) {}

  void Run() {
    const std::vector<int64_t> steps = evidence_.test_case.SavedSteps();
    if (steps.empty() || LastStepOf(phase_, Stage::kSaved) != steps.back()) {
      judgement_.Inconclusive(
          "the job did not reach its last save, so the files on disk may be from another job");
      return;
    }
    judgement_.Compared();
    if (!saved_.error.empty()) {
      judgement_.Found(FindingAt(phase_, Stage::kSaved, "", "unreadable", {},
                                 "the saved checkpoint cannot be read: " + saved_.error));
      return;
    }
    const std::string of_model = KeyAt(phase_, Stage::kSaved, steps.back(), "model");
    for (const std::string& name : TensorNames(phase_, of_model)) {
      if (IsPersistent(evidence_.oracle, name)) CheckTensor(of_model, name, KeyOfModel(name));
    }
    const std::string of_optimizer = KeyAt(phase_, Stage::kSaved, steps.back(), "optimizer");
    for (const std::string& name : TensorNames(phase_, of_optimizer)) {
      CheckTensor(of_optimizer, name, IsOfLoop(name) ? name : "optimizer.state." + name);
    }
    for (const auto& [key, tensor] : saved_.tensors) {
      const bool is_rng = key.starts_with("rng_");  // of which the evidence has a digest of its own
      judgement_.Compared();
      if (is_rng || expected_.contains(key)) continue;
      judgement_.Found(
          FindingAt(phase_, Stage::kSaved, key, "extra", {},
                    "the checkpoint has a tensor that neither model nor optimizer has"));
    }
  }

 private:
  /// In safetensors, which have no second name for one place, and where fused tensors are split, a
  /// tied tensor stands under one of its names.
  std::string KeyOfModel(const std::string& name) const {
    const TrainingCase& training = evidence_.test_case.training;
    const std::string prefix = training.format == "dcp" ? "model." : "";
    if (training.format == "dcp" && !training.split_fused) return prefix + name;
    if (saved_.tensors.contains(prefix + name)) return prefix + name;
    for (const auto& tie : evidence_.oracle.ties) {
      if (std::find(tie.begin(), tie.end(), name) == tie.end()) continue;
      for (const std::string& other : tie) {
        if (saved_.tensors.contains(prefix + other)) return prefix + other;
      }
    }
    return prefix + name;
  }

  void CheckTensor(const std::string& stage, const std::string& name, const std::string& key) {
    expected_.insert(key);
    const std::vector<Image> held = DefinedImages(phase_, stage, name, judgement_);
    if (held.empty()) return;
    judgement_.Compared();
    const auto tensor = saved_.tensors.find(key);
    if (tensor == saved_.tensors.end()) {
      judgement_.Found(FindingAt(phase_, stage, name, "absent", {},
                                 fmt::format("the checkpoint lacks '{}'", key), {.other = key}));
      return;
    }
    const Against against{Against::What::kEarlier, phase_.phase, stage};
    const Comparison comparison{evidence_, phase_, stage, name, against, {}};
    if (auto finding = Compare(comparison, held[0], ImageOf(tensor->second))) {
      finding->message = "on disk " + finding->message;
      judgement_.Found(std::move(*finding));
    }
  }

  const Evidence& evidence_;
  const PhaseEvidence& phase_;
  const CheckpointRecord& saved_;
  Judgement& judgement_;
  std::set<std::string> expected_;  ///< keys
};

/// What the reference saves of a training job holds every persistent tensor of the model and
/// every tensor of the optimizer's state, once and under its key, bit for bit as they were at
/// `saved`, and nothing else; read by a reader that shares nothing with the one that saved it.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (!IsReference(evidence)) {
    judgement.Skipped("what a subject saves has keys of its own");
    return;
  }
  const PhaseEvidence* train = PhaseToJudge(evidence, Phase::kTrain, judgement);
  if (train == nullptr) return;
  const auto saved = evidence.oracle.saved.find(Phase::kTrain);
  if (saved == evidence.oracle.saved.end() || KeyOf(*train, Stage::kSaved, "model").empty()) {
    judgement.Inconclusive("phase train left no saved checkpoint");
    return;
  }
  FilesCheck(evidence, *train, saved->second, judgement).Run();
}

const PropertyRegistration kRegistration{{
    .id = "checkpoint.training_files",
    .claim = "A training job writes every tensor to disk once, as it was in memory.",
    .reads = {{{Phase::kTrain}, {Stage::kSaved}, "the saved checkpoint"}},
    .tolerance = "bit-exact: saving moves bytes",
    .source = "torch.distributed.checkpoint; deepspeedai/DeepSpeed#3090",
    .killed_by = {"checkpoint.optimizer_only", "checkpoint.moments_swapped",
                  "checkpoint.piece_names_swapped", "checkpoint.snapshot_is_live",
                  "checkpoint.halves_of_state_swapped"},
    .check = Check,
    .capabilities = {"train", "save"},
}};

}  // namespace
}  // namespace shardproof::checkpoint::training_files
