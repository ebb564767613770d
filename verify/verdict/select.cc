#include "verify/verdict/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "verify/verdict/runs.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/values.h"

namespace shardproof {
namespace {

/// Why the case does not ask for a phase, or empty if it does.
std::string NotAskedFor(const Evidence& evidence, const std::string& name) {
  const Case& test_case = evidence.test_case;
  if (name == "plain" && test_case.strategy == "plain") {
    return "the case's own strategy is the plain one";
  }
  if (name == "plain" && evidence.WhyCannot("plain")) return *evidence.WhyCannot("plain");
  const bool trains = name.starts_with("train") || name == "again";
  if (trains && evidence.WhyCannot("train")) return *evidence.WhyCannot("train");
  if (trains && test_case.steps == 0) return "the case takes no optimizer steps";
  if (name == "train_on_device" && test_case.training.offload == 0) {
    return "the case has the host do nothing of the optimizer's work";
  }
  const bool resumes = name == "resume" || name == "train_resume";
  if (resumes && test_case.resume_mesh.empty()) return "the case has no resume_mesh";
  if (resumes && evidence.WhyCannot("save")) return *evidence.WhyCannot("save");
  if (name == "memory") return "the run has no memory phase";
  if (name == "fault" && test_case.faults.empty()) return "the case injects no fault";
  return "";
}

/// What the coverage of an image is if all of it is there.
Digest WholeCoverage(const Image& image) {
  uint64_t elements = 1;
  for (const int64_t size : image.shape) elements *= static_cast<uint64_t>(size);
  return CoverageOf({{0, elements, 1, 0}}, ElementBytes(image.dtype).value_or(1));
}

std::string EndOf(const RankEvidence& rank) {
  return rank.exit.empty() ? "how it ended is not recorded" : "its exit: " + rank.exit;
}

}  // namespace

bool IsReference(const Evidence& evidence) { return evidence.test_case.subject == "reference"; }

const PhaseEvidence* PhaseToJudge(const Evidence& evidence, const std::string& name,
                                  Judgement& judgement) {
  const PhaseEvidence* phase = evidence.Phase(name);
  if (phase == nullptr) {
    const std::string reason = NotAskedFor(evidence, name);
    if (reason.empty()) {
      judgement.Inconclusive(fmt::format("there is no evidence of phase {}", name));
    } else {
      judgement.Skipped(reason);
    }
    return nullptr;
  }
  if (!phase->skipped.empty()) {
    judgement.Skipped(fmt::format("phase {} did not run: {}", name, phase->skipped));
    return nullptr;
  }
  if (phase->ranks.empty()) {
    judgement.Inconclusive(fmt::format("phase {} has no evidence of any rank", name));
    return nullptr;
  }
  return phase;
}

bool WasStruck(const PhaseEvidence& phase) {
  return std::any_of(phase.ranks.begin(), phase.ranks.end(),
                     [](const RankEvidence& rank) { return !rank.faults.empty(); });
}

std::vector<const PhaseEvidence*> LoadPhases(const Evidence& evidence, Judgement& judgement) {
  std::vector<const PhaseEvidence*> phases;
  for (const char* name : {"values", "plain", "resume"}) {
    const bool is_optional = std::string(name) != "values" && evidence.Phase(name) == nullptr;
    if (is_optional) continue;
    const PhaseEvidence* phase = PhaseToJudge(evidence, name, judgement);
    if (phase != nullptr) phases.push_back(phase);
  }
  return phases;
}

bool StageReached(const PhaseEvidence& phase, const std::string& stage, Judgement& judgement) {
  const bool any = std::any_of(phase.ranks.begin(), phase.ranks.end(),
                               [&](const auto& rank) { return rank.Stage(stage) != nullptr; });
  if (!any) return false;
  for (const RankEvidence& rank : phase.ranks) {
    const StageRecord* record = rank.Stage(stage);
    // Rank 0 alone may have something to show before the others get their part.
    if (record == nullptr && stage == "loaded" && rank.Stage("ready") != nullptr) continue;
    if (record == nullptr) {
      judgement.Inconclusive(fmt::format("rank {} of phase {} did not reach `{}` ({})", rank.rank,
                                         phase.name, stage, EndOf(rank)));
    } else if (!record->complete) {
      judgement.Inconclusive(
          fmt::format("rank {} of phase {} did not finish its record of `{}` ({})", rank.rank,
                      phase.name, stage, EndOf(rank)));
    }
  }
  return true;
}

bool StageToJudge(const PhaseEvidence& phase, const std::string& stage, Judgement& judgement) {
  if (StageReached(phase, stage, judgement)) return true;
  judgement.Inconclusive(fmt::format("no rank of phase {} reached `{}`", phase.name, stage));
  return false;
}

std::vector<std::string> FinalStages(const PhaseEvidence& phase, Judgement& judgement) {
  std::vector<std::string> stages;
  for (const char* stage : {"ready", "restored"}) {
    if (StageReached(phase, stage, judgement)) stages.push_back(stage);
  }
  const bool has_ready = !stages.empty() && stages[0] == "ready";
  if (!has_ready && (stages.empty() || phase.name != "resume")) {
    judgement.Inconclusive(fmt::format("no rank of phase {} reached `{}`", phase.name,
                                       phase.name == "resume" ? "restored" : "ready"));
  }
  return stages;
}

std::vector<const PhaseEvidence*> TrainPhases(const Evidence& evidence) {
  std::vector<const PhaseEvidence*> phases;
  for (const char* name : {"values", "train", "again", "train_on_device", "train_resume"}) {
    const PhaseEvidence* phase = evidence.Phase(name);
    if (phase != nullptr && phase->skipped.empty() && !phase->ranks.empty()) {
      phases.push_back(phase);
    }
  }
  return phases;
}

std::vector<std::string> TrainStages(const PhaseEvidence& phase, const std::string& of,
                                     Judgement& judgement) {
  std::set<std::string> whole = {"ready", "stepped", "saved", "restored", "resumed"};
  if (phase.name == "values" && of == "model") whole = {"stepped", "resumed"};  // see FinalStages
  std::vector<std::string> keys;
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& stage : rank.stages) {
      const std::string key = stage.Key();
      const bool is_known = std::find(keys.begin(), keys.end(), key) != keys.end();
      if (stage.of == of && whole.contains(stage.name) && !is_known) keys.push_back(key);
    }
  }
  for (const std::string& key : keys) StageReached(phase, key, judgement);
  return keys;
}

std::vector<PhaseStage> AllTrainStages(const Evidence& evidence, Judgement& judgement) {
  std::vector<PhaseStage> all;
  for (const PhaseEvidence* phase : TrainPhases(evidence)) {
    for (const char* of : {"model", "optimizer"}) {
      for (const std::string& key : TrainStages(*phase, of, judgement)) all.push_back({phase, key});
    }
  }
  return all;
}

std::string KeyOf(const PhaseEvidence& phase, const std::string& name, const std::string& of) {
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& stage : rank.stages) {
      if (stage.name == name && stage.of == of) return stage.Key();
    }
  }
  return "";
}

std::string KeyAt(const PhaseEvidence& phase, const std::string& name, int64_t step,
                  const std::string& of) {
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& stage : rank.stages) {
      if (stage.name == name && stage.step == step && stage.of == of) return stage.Key();
    }
  }
  return "";
}

std::optional<int64_t> LastStepOf(const PhaseEvidence& phase, const std::string& name) {
  std::optional<int64_t> last;
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& stage : rank.stages) {
      if (stage.name == name && stage.of == "model")
        last = std::max(last.value_or(stage.step), stage.step);
    }
  }
  return last;
}

std::vector<std::string> TensorNames(const PhaseEvidence& phase, const std::string& stage) {
  std::set<std::string> names;
  for (const RankEvidence& rank : phase.ranks) {
    const StageRecord* record = rank.Stage(stage);
    if (record == nullptr) continue;
    for (const auto& [name, state] : record->tensors) names.insert(name);
  }
  return {names.begin(), names.end()};
}

TensorOnRank FindTensor(const RankEvidence& rank, const std::string& stage,
                        const std::string& tensor) {
  const StageRecord* record = rank.Stage(stage);
  if (record == nullptr) return {};
  const auto found = record->tensors.find(tensor);
  if (found == record->tensors.end()) return {};
  return {&found->second, &rank.Descriptor(found->second)};
}

void NoteUnreadable(const PhaseEvidence& phase, const std::string& stage, const std::string& tensor,
                    const std::string& why, Judgement& judgement) {
  judgement.Inconclusive(
      fmt::format("{} at `{}` of phase {} cannot be read: {}", tensor, stage, phase.name, why));
}

std::vector<Image> DefinedImages(const PhaseEvidence& phase, const std::string& stage,
                                 const std::string& tensor, Judgement& judgement,
                                 Undefined undefined) {
  std::vector<Image> defined;
  std::vector<int64_t> ranks;
  const bool all_there = std::all_of(phase.ranks.begin(), phase.ranks.end(), [&](const auto& rank) {
    return rank.Stage(stage) != nullptr && rank.Stage(stage)->complete;
  });
  for (Image& image : ImagesOf(phase, stage, tensor)) {
    if (!image.unreadable.empty()) {
      NoteUnreadable(phase, stage, tensor, image.unreadable, judgement);
      continue;
    }
    // A rank that did not get here is said by StageReached; its part cannot be held against others.
    if (!all_there && image.coverage != WholeCoverage(image)) continue;
    if (image.defined) {
      defined.push_back(std::move(image));
      continue;
    }
    for (const Part& part : image.parts) {
      if (part.state->content != Content::kDefined || part.state->is_meta) {
        ranks.push_back(part.rank->rank);
      }
    }
  }
  if (ranks.empty()) return defined;
  const std::string what = "nothing has given it a value yet";
  Finding finding = FindingAt(phase, stage, tensor, "undefined", ranks, what);
  if (undefined == Undefined::kInconclusive) {
    judgement.Inconclusive(finding.message);
  } else {
    judgement.Compared();
    judgement.Found(std::move(finding));
  }
  return defined;
}

Finding FindingAt(const PhaseEvidence& phase, const std::string& stage, const std::string& tensor,
                  const std::string& kind, const std::vector<int64_t>& ranks,
                  const std::string& what, Facts facts) {
  Finding finding;
  finding.facts = std::move(facts);
  finding.kind = kind;
  finding.phase = phase.name;
  finding.stage = stage;
  finding.tensor = tensor;
  finding.ranks = Sorted(ranks);
  const std::string subject = tensor.empty() ? "" : tensor + " ";
  const std::string at = stage.empty() ? "in" : fmt::format("at `{}` of", stage);
  const std::string scope = ranks.empty() ? "" : " on " + ScopeLine(phase, finding.ranks);
  finding.message = fmt::format("{}{} phase {}{}: {}", subject, at, phase.name, scope, what);
  return finding;
}

void FindingsByRank::Add(const std::string& tensor, const std::string& kind,
                         const std::string& what, const std::vector<int64_t>& ranks,
                         const Facts& facts) {
  Place& place = places_.try_emplace({tensor, kind, what}, Place{{}, facts}).first->second;
  place.ranks.insert(place.ranks.end(), ranks.begin(), ranks.end());
}

void FindingsByRank::Report(Judgement& judgement) const {
  for (const auto& [key, place] : places_) {
    const auto& [tensor, kind, what] = key;
    judgement.Found(FindingAt(phase_, stage_, tensor, kind, place.ranks, what, place.facts));
  }
}

std::string ExitOf(const RankEvidence& rank) { return rank.exit.substr(0, rank.exit.find(" (")); }

bool HasStruck(const FaultCase& fault, const Evidence& evidence) {
  for (const PhaseEvidence& phase : evidence.phases) {
    for (const RankEvidence& rank : phase.ranks) {
      for (const FaultRecord& record : rank.faults) {
        if (record.id == fault.id && record.where == fault.where) return true;
      }
    }
  }
  return false;
}

}  // namespace shardproof
