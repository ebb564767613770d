// conformance.observed_alike: what one rank shows of a job, the others show too, and once.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::conformance::observed_alike {
namespace {

/// Whether a rank that lacks the stage leaves something out. Reading may be the matter of some
/// ranks, and a whole state dict that of one. A rank may have nothing that an optimizer steps.
bool IsDueOn(const RankEvidence& rank, const StageRecord& shown) {
  if (shown.name == Stage::kLoaded || shown.of == "state_dict") return false;
  return shown.of == "model" || Shows(rank, "optimizer");
}

/// Whether the job may show a stage as it likes: one of its own, or saves and restores of a job
/// that promises none, as that of a script, of which one rank may save, or several times.
bool IsFree(const Evidence& evidence, const std::string& key) {
  if (!FindStage(key.substr(0, key.find_first_of("@.")))) return true;
  return evidence.WhyCannot("save") && (IsAt(key, Stage::kSaved) || IsAt(key, Stage::kRestored));
}

void Tell(const Evidence& evidence, const std::string& key, std::string what,
          Judgement& judgement) {
  if (IsFree(evidence, key)) {
    judgement.NotCompared(std::move(what));
  } else {
    judgement.Inconclusive(std::move(what));
  }
}

/// Stages that some ranks show, and others do not.
void CheckRanks(const Evidence& evidence, const PhaseEvidence& phase, Judgement& judgement) {
  std::map<std::string, const StageRecord*> shown;
  for (const RankEvidence& rank : phase.ranks) {
    for (const StageRecord& record : rank.stages) shown.emplace(record.Key(), &record);
  }
  for (const auto& [key, record] : shown) {
    std::vector<int64_t> lacking;
    for (const RankEvidence& rank : phase.ranks) {
      judgement.Compared();
      if (rank.Stage(key) == nullptr && IsDueOn(rank, *record)) lacking.push_back(rank.rank);
    }
    if (lacking.empty()) continue;
    Tell(evidence, key,
         fmt::format("`{}` of phase {} is observed, but not on {}", key, phase.name(),
                     ScopeLine(phase, lacking)),
         judgement);
  }
}

/// Stages that a rank shows again: under one name only the first of them is judged.
void CheckOnce(const Evidence& evidence, const PhaseEvidence& phase, Judgement& judgement) {
  std::map<std::string, std::set<int64_t>> again;
  for (const RankEvidence& rank : phase.ranks) {
    std::set<std::string> seen;
    for (const StageRecord& record : rank.stages) {
      if (record.of == "model" && !seen.insert(record.Key()).second) {
        again[record.Key()].insert(rank.rank);
      }
    }
    judgement.Compared(seen.size());
  }
  for (const auto& [key, on] : again) {
    Tell(evidence, key,
         fmt::format("`{}` of phase {} is observed more than once on {}, and only the first is "
                     "judged",
                     key, phase.name(), ScopeLine(phase, {on.begin(), on.end()})),
         judgement);
  }
}

/// Where one rank reads for all, it is that one that says what it read.
void CheckReader(const PhaseEvidence& phase, Judgement& judgement) {
  const auto tells = [](const RankEvidence& rank) {
    return rank.keys.has_value() || rank.Stage(Stage::kLoaded) != nullptr;
  };
  judgement.Compared();
  if (std::none_of(phase.ranks.begin(), phase.ranks.end(), tells) || tells(phase.ranks[0])) return;
  judgement.Inconclusive(
      fmt::format("rank 0 reads for all ranks of phase {}, and other ranks observed `{}` in its "
                  "place",
                  phase.name(), NameOf(Stage::kLoaded)));
}

/// All ranks observe the same stages, and none of them twice. Exempt is what only some ranks have:
/// what was read, a whole state dict, and an optimizer on ranks that have none.
void Check(const Evidence& evidence, Judgement& judgement) {
  for (const PhaseEvidence& phase : evidence.phases) {
    if (IsReference(evidence) || !phase.skipped.empty() || phase.facts().mode != RunMode::kValues ||
        phase.ranks.empty() || WasStruck(phase) || !AllEndedWell(phase))
      continue;
    CheckRanks(evidence, phase, judgement);
    CheckOnce(evidence, phase, judgement);
    if (phase.facts().one_reads) CheckReader(phase, judgement);
  }
  judgement.Skipped("nothing was observed by a job whose ranks came to their ends");
}

const PropertyRegistration kRegistration{{
    .id = "conformance.observed_alike",
    .claim = "Every rank observes the same stages, each of them once.",
    .reads = {{EveryPhase(), {}, "the stages that each rank observed"}},
    .tolerance = "none: sets",
    .source = "what is not observed is not judged, so it is not a pass",
    .killed_by = {"subject.save_seen_on_rank_0", "subject.observes_ready_twice",
                  "subject.loaded_seen_elsewhere"},
    .check = Check,
    .only_subjects = true,
}};

}  // namespace
}  // namespace shardproof::conformance::observed_alike
