// checkpoint.round_trip: what is saved is what was loaded, and what is restored is what was saved.
#include <fmt/format.h>

#include <set>

#include "verify/verdict/expectation.h"
#include "verify/verdict/locate.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::checkpoint::round_trip {
namespace {

class SavedCheck {
 public:
  SavedCheck(const Evidence& evidence, const PhaseEvidence& phase, const CheckpointRecord& saved,
             Judgement& judgement)
      : evidence_(evidence), phase_(phase), saved_(saved), judgement_(judgement) {}

  void Run() {
    judgement_.Compared();
    if (!saved_.error.empty()) {
      const std::string what = "the saved checkpoint cannot be read: " + saved_.error;
      const char* hint = "; if that is a format of its own, declare \"saved_files\" in CANNOT";
      judgement_.Found(Wrong("unreadable", "", IsReference(evidence_) ? what : what + hint));
      return;
    }
    std::set<std::string> accounted;
    for (const auto& [name, declared] : evidence_.oracle.declared) {
      const std::vector<std::string> group = TieGroup(evidence_.oracle, name);
      if (!IsPersistent(evidence_.oracle, name)) continue;
      accounted.insert(group.begin(), group.end());
      if (group.front() == name) CheckGroup(group);
    }
    for (const auto& [name, tensor] : saved_.tensors) {
      judgement_.Compared();
      if (!accounted.contains(name)) {
        judgement_.Found(Wrong("extra", name,
                               "the saved checkpoint has a tensor that the model's "
                               "state dict does not"));
      }
    }
  }

 private:
  Finding Wrong(const std::string& kind, const std::string& tensor, const std::string& what,
                const Facts& facts = {}) {
    return FindingAt(phase_, Stage::kSaved, tensor, kind, {}, what, facts);
  }

  void CheckGroup(const std::vector<std::string>& group) {
    std::vector<std::string> names;
    for (const std::string& name : group) {
      if (saved_.tensors.contains(name)) names.push_back(name);
    }
    judgement_.Compared();
    if (names.empty()) {
      judgement_.Found(Wrong("absent", group[0], "the saved checkpoint lacks it"));
    } else if (names.size() > 1) {
      judgement_.Found(Wrong("duplicate", group[0],
                             "one tied tensor is saved more than once: " + ListSome(names),
                             {.other = names[1]}));
    }
    for (const std::string& name : names) CheckValue(name);
    if (IsReference(evidence_)) CheckKeys(group);
  }

  /// Whoever could read the source can read what was saved of it.
  void CheckKeys(const std::vector<std::string>& group) {
    for (const std::string& name : group) {
      const auto source = evidence_.oracle.source.tensors.find(name);
      const auto saved = saved_.tensors.find(name);
      if (source == evidence_.oracle.source.tensors.end() || saved == saved_.tensors.end())
        continue;
      judgement_.Compared();
      if (source->second.keys == saved->second.keys) continue;
      Finding finding = Wrong("keys", name, "it is saved under other keys than it was loaded from",
                              {.against = {Against::What::kCheckpoint}});
      finding.expected = KeysText(source->second);
      finding.seen = KeysText(saved->second);
      finding.in_message = {.expected = false, .seen = false};
      judgement_.Found(std::move(finding));
    }
  }

  static std::string KeysText(const FileTensor& tensor) {
    return tensor.keys.empty() ? tensor.name : ListSome(tensor.keys);
  }

  void CheckValue(const std::string& name) {
    const Image seen = ImageOf(saved_.tensors.at(name));
    const Expectation expected = ExpectedOf(evidence_.oracle, name);
    if (expected.tensor != nullptr) {
      CompareWith(name, expected.from, expected.tensor->name, ImageOf(*expected.tensor), seen);
      return;
    }
    for (const Stage stage :
         {Stage::kBuilt, Stage::kReady}) {  // a buffer that the model made itself
      for (const Image& image : ImagesOf(phase_, stage, name)) {
        if (!image.defined) continue;
        CompareWith(name, {Against::What::kEarlier, phase_.phase, stage}, name, image, seen);
        return;
      }
    }
    judgement_.Inconclusive("nothing says what " + name + " should be saved as");
  }

  void CompareWith(const std::string& name, const Against& against,
                   const std::string& expected_name, const Image& expected, const Image& seen) {
    judgement_.Compared();
    const Comparison comparison{evidence_, phase_, Stage::kSaved, name, against, {}};
    std::optional<Finding> finding = Compare(comparison, expected, seen);
    if (!finding) return;
    // Tied: the expected bytes may have to be recorded under another name.
    if (!finding->wanted.empty() && !expected_name.empty() && expected_name != name) {
      finding->wanted.push_back(finding->wanted[0]);
      finding->wanted.back().tensor = expected_name;
    }
    judgement_.Found(std::move(*finding));
  }

  const Evidence& evidence_;
  const PhaseEvidence& phase_;
  const CheckpointRecord& saved_;
  Judgement& judgement_;
};

void CheckRestored(const Evidence& evidence, const PhaseEvidence& phase, Judgement& judgement) {
  std::set<std::string> names;
  for (const Stage stage : {Stage::kReady, Stage::kRestored}) {
    for (const std::string& name : TensorNames(phase, stage)) names.insert(name);
  }
  for (const std::string& name : names) {
    const std::vector<Image> ready = DefinedImages(phase, Stage::kReady, name, judgement);
    const std::vector<Image> restored = DefinedImages(phase, Stage::kRestored, name, judgement);
    if (ready.empty() || restored.empty()) {
      judgement.Inconclusive(
          fmt::format("{} of phase {} is not at both `ready` and `restored`", name, phase.name()));
      continue;
    }
    judgement.Compared(restored.size());
    const Against against{Against::What::kEarlier, phase.phase, Stage::kReady};
    const Comparison comparison{evidence, phase, Stage::kRestored, name, against, {}};
    for (Finding& finding : CompareAll(comparison, ready[0], restored)) {
      judgement.Found(std::move(finding));
    }
  }
}

/// Of a run that left no checkpoint: whether it says that it has saved one.
void CheckLeft(const Evidence& evidence, const PhaseEvidence& values, Judgement& judgement) {
  if (IsReference(evidence) && StageReached(values, Stage::kSaved, judgement)) {
    judgement.Compared();
    judgement.Found(FindingAt(values, Stage::kSaved, "", "absent", {},
                              "the job saved a checkpoint, but none is there"));
    return;
  }
  judgement.Inconclusive("phase values left no saved checkpoint");
}

/// A saved checkpoint has each tensor of the state dict once, and no other, with the dtype,
/// shape and bits that were loaded or initialised; the reference saves it under the keys that
/// it was loaded from; restoring it gives the digests of `ready`.
void Check(const Evidence& evidence, Judgement& judgement) {
  const PhaseEvidence* values = PhaseToJudge(evidence, Phase::kValues, judgement);
  if (values == nullptr) return;
  if (!evidence.oracle.source.error.empty()) {
    judgement.Inconclusive("the source cannot be read: " + evidence.oracle.source.error);
    return;
  }
  if (const std::string* why = evidence.WhyCannot("saved_files")) {
    judgement.Skipped("the saved files were not read: " + *why);
  } else if (!evidence.oracle.saved.contains(Phase::kValues)) {
    CheckLeft(evidence, *values, judgement);
  }
  if (evidence.oracle.declared.empty()) {
    judgement.Inconclusive("nothing says which tensors the model should have");
    return;
  }
  for (const auto& [of, saved] : SavedModels(evidence.oracle)) {
    const PhaseEvidence* phase = evidence.Phase(of);
    if (phase != nullptr) {
      SavedCheck(evidence, *phase, *saved, judgement).Run();
    } else {
      judgement.Inconclusive(
          fmt::format("a checkpoint of phase {}, of which there is no evidence", NameOf(of)));
    }
  }
  if (StageToJudge(*values, Stage::kReady, judgement) &&
      StageToJudge(*values, Stage::kRestored, judgement)) {
    CheckRestored(evidence, *values, judgement);
  }
}

const PropertyRegistration kRegistration{{
    .id = "checkpoint.round_trip",
    .claim = "A saved checkpoint has each tensor of the state dict once, bit for bit, and restores "
             "to the same model.",
    .reads = {{{Phase::kValues}, {Stage::kReady, Stage::kRestored}, "saved checkpoints"}},
    .tolerance = "bit-exact: saving moves bytes",
    .source = "deepspeedai/DeepSpeed#3090, safetensors/safetensors#17, pytorch/pytorch#120356",
    .killed_by = {"checkpoint.drops_frozen", "checkpoint.ignores_shard_offset",
                  "checkpoint.names_not_synced", "checkpoint.not_synced",
                  "checkpoint.old_removed_first", "checkpoint.tie_saved_twice"},
    .check = Check,
    .capabilities = {"save"},
}};

}  // namespace
}  // namespace shardproof::checkpoint::round_trip
