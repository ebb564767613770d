#include "verify/verdict/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "verify/case/names.h"
#include "verify/verdict/runs.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/values.h"

namespace shardproof {
namespace {

/// Why the case does not ask for a phase, or empty if it does.
std::string NotAskedFor(const Evidence& evidence, Phase phase) {
  const Case& test_case = evidence.test_case;
  const PhaseFacts& facts = FactsOf(phase);
  if (evidence.is_quick && phase != Phase::kValues) return "--quick runs one phase";
  if (facts.is_plain && test_case.strategy == kPlainStrategy) {
    return "the case's own strategy is the plain one";
  }
  if (facts.is_plain && evidence.WhyCannot("plain")) return *evidence.WhyCannot("plain");
  if (facts.trains && evidence.WhyCannot("train")) return *evidence.WhyCannot("train");
  if (facts.trains && test_case.steps == 0) return "the case takes no optimizer steps";
  if (!facts.offloads && test_case.training.offload == 0) {
    return "the case gives the host no part of the optimizer's work";
  }
  if (facts.on_resume_mesh && test_case.resume_mesh.empty()) return "the case has no resume_mesh";
  if (facts.resumes && evidence.WhyCannot("save")) return *evidence.WhyCannot("save");
  if (facts.mode == RunMode::kMemory) return "the run has no memory phase";
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

const PhaseEvidence* PhaseToJudge(const Evidence& evidence, Phase wanted, Judgement& judgement) {
  const PhaseEvidence* phase = evidence.Phase(wanted);
  if (phase == nullptr) {
    const std::string reason = NotAskedFor(evidence, wanted);
    if (reason.empty()) {
      judgement.Inconclusive(fmt::format("there is no evidence of phase {}", NameOf(wanted)));
    } else {
      judgement.Skipped(reason);
    }
    return nullptr;
  }
  if (!phase->skipped.empty()) {
    judgement.Skipped(fmt::format("phase {} did not run: {}", phase->name(), phase->skipped));
    return nullptr;
  }
  if (phase->ranks.empty()) {
    judgement.Inconclusive(fmt::format("phase {} has no evidence of any rank", phase->name()));
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
  for (const Phase each : LoadingPhases()) {
    if (each != Phase::kValues && evidence.Phase(each) == nullptr) continue;
    const PhaseEvidence* phase = PhaseToJudge(evidence, each, judgement);
    if (phase != nullptr) phases.push_back(phase);
  }
  return phases;
}

Stage FirstWholeStage(const PhaseEvidence& phase) {
  return phase.facts().resumes ? Stage::kRestored : Stage::kReady;
}

bool StageReached(const PhaseEvidence& phase, const StageKey& stage, Judgement& judgement) {
  const bool any = std::any_of(phase.ranks.begin(), phase.ranks.end(),
                               [&](const auto& rank) { return rank.Stage(stage) != nullptr; });
  if (!any) return false;
  for (const RankEvidence& rank : phase.ranks) {
    const StageRecord* record = rank.Stage(stage);
    // Rank 0 alone may have something to show before the others get their part.
    if (record == nullptr && stage == Stage::kLoaded && rank.Stage(Stage::kReady) != nullptr)
      continue;
    if (record == nullptr) {
      judgement.Inconclusive(fmt::format("rank {} of phase {} did not reach `{}` ({})", rank.rank,
                                         phase.name(), stage.text(), EndOf(rank)));
    } else if (!record->complete) {
      judgement.Inconclusive(
          fmt::format("rank {} of phase {} did not finish its record of `{}` ({})", rank.rank,
                      phase.name(), stage.text(), EndOf(rank)));
    }
  }
  return true;
}

bool StageToJudge(const PhaseEvidence& phase, const StageKey& stage, Judgement& judgement) {
  if (StageReached(phase, stage, judgement)) return true;
  judgement.Inconclusive(
      fmt::format("no rank of phase {} reached `{}`", phase.name(), stage.text()));
  return false;
}

bool StepsToJudge(const PhaseEvidence& phase, Judgement& judgement) {
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& each : rank.stages) {
      if (each.name == Stage::kStepped) return true;
    }
  }
  judgement.Inconclusive(fmt::format("no rank of phase {} reached `stepped`", phase.name()));
  return false;
}

std::vector<std::string> FinalStages(const PhaseEvidence& phase, Judgement& judgement) {
  std::vector<std::string> stages;
  for (const Stage stage : {Stage::kReady, Stage::kRestored}) {
    if (StageReached(phase, stage, judgement)) stages.emplace_back(NameOf(stage));
  }
  const Stage first = FirstWholeStage(phase);
  const bool has_ready = !stages.empty() && stages[0] == Stage::kReady;
  if (!has_ready && (stages.empty() || first == Stage::kReady)) {
    judgement.Inconclusive(
        fmt::format("no rank of phase {} reached `{}`", phase.name(), NameOf(first)));
  }
  return stages;
}

std::vector<const PhaseEvidence*> TrainPhases(const Evidence& evidence) {
  std::vector<Phase> all = TrainingPhases();
  all.insert(all.begin(), Phase::kValues);
  std::vector<const PhaseEvidence*> phases;
  for (const Phase each : all) {
    const PhaseEvidence* phase = evidence.Phase(each);
    if (phase != nullptr && phase->skipped.empty() && !phase->ranks.empty()) {
      phases.push_back(phase);
    }
  }
  return phases;
}

std::vector<std::string> TrainStages(const PhaseEvidence& phase, const std::string& of,
                                     Judgement& judgement) {
  const bool only_steps = !phase.facts().trains && of == "model";  // see FinalStages
  std::vector<std::string> keys;
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& record : rank.stages) {
      const std::optional<Stage> stage = FindStage(record.name);
      if (record.of != of || !stage) continue;
      const StageFacts& facts = FactsOf(*stage);
      if (!(only_steps ? facts.is_step : facts.is_whole)) continue;
      const std::string key = record.Key();
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
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

std::string KeyOf(const PhaseEvidence& phase, Stage stage, const std::string& of) {
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& record : rank.stages) {
      if (record.name == stage && record.of == of) return record.Key();
    }
  }
  return "";
}

std::string KeyAt(const PhaseEvidence& phase, Stage stage, int64_t step, const std::string& of) {
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& record : rank.stages) {
      if (record.name == stage && record.step == step && record.of == of) return record.Key();
    }
  }
  return "";
}

std::optional<int64_t> LastStepOf(const PhaseEvidence& phase, Stage stage) {
  std::optional<int64_t> last;
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& record : rank.stages) {
      if (record.name == stage && record.of == "model")
        last = std::max(last.value_or(record.step), record.step);
    }
  }
  return last;
}

std::vector<std::string> TensorNames(const PhaseEvidence& phase, const StageKey& stage) {
  std::set<std::string> names;
  for (const RankEvidence& rank : phase.ranks) {
    const StageRecord* record = rank.Stage(stage);
    if (record == nullptr) continue;
    for (const auto& [name, state] : record->tensors) names.insert(name);
  }
  return {names.begin(), names.end()};
}

TensorOnRank FindTensor(const RankEvidence& rank, const StageKey& stage,
                        const std::string& tensor) {
  const StageRecord* record = rank.Stage(stage);
  if (record == nullptr) return {};
  const auto found = record->tensors.find(tensor);
  if (found == record->tensors.end()) return {};
  return {&found->second, &rank.Descriptor(found->second)};
}

void NoteUnreadable(const PhaseEvidence& phase, const StageKey& stage, const std::string& tensor,
                    const std::string& why, Judgement& judgement) {
  judgement.Inconclusive(fmt::format("{} at `{}` of phase {} was not compared: {}", tensor,
                                     stage.text(), phase.name(), why));
}

std::vector<Image> DefinedImages(const PhaseEvidence& phase, const StageKey& stage,
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

Finding FindingAt(const PhaseEvidence& phase, const StageKey& stage, const std::string& tensor,
                  const std::string& kind, const std::vector<int64_t>& ranks,
                  const std::string& what, Facts facts) {
  Finding finding;
  finding.facts = std::move(facts);
  finding.kind = kind;
  finding.phase = phase.phase;
  finding.stage = stage;
  finding.tensor = tensor;
  finding.ranks = Sorted(ranks);
  const std::string subject = tensor.empty() ? "" : tensor + " ";
  const std::string at = stage.empty() ? "in" : fmt::format("at `{}` of", stage.text());
  const std::string scope = ranks.empty() ? "" : " on " + ScopeLine(phase, finding.ranks);
  finding.message = fmt::format("{}{} phase {}{}: {}", subject, at, phase.name(), scope, what);
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

bool EndedWell(const RankEvidence& rank) { return rank.closed && rank.errors.empty(); }

bool AllEndedWell(const PhaseEvidence& phase) {
  return std::all_of(phase.ranks.begin(), phase.ranks.end(), EndedWell);
}

bool Shows(const RankEvidence& rank, std::string_view of, std::optional<Stage> stage) {
  return std::any_of(rank.stages.begin(), rank.stages.end(), [&](const StageRecord& record) {
    return record.of == of && (!stage || record.name == *stage);
  });
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
