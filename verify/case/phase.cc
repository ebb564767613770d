#include "verify/case/phase.h"

#include <fmt/format.h>

#include "verify/case/names.h"

namespace shardproof {

namespace {

template <typename Wanted>
std::vector<Phase> PhasesThat(Wanted wanted) {
  std::vector<Phase> phases;
  for (const PhaseFacts& facts : kPhases) {
    if (wanted(facts)) phases.push_back(facts.phase);
  }
  return phases;
}

}  // namespace

Result<Phase> ParsePhase(std::string_view name) {
  NameTable known;
  for (const PhaseFacts& facts : kPhases) {
    if (name == facts.name) return facts.phase;
    known.push_back(facts.name);
  }
  return BadInput(
      fmt::format("there is no phase '{}': expected one of {}", name, ListNames(known)));
}

std::vector<Phase> EveryPhase() {
  return PhasesThat([](const PhaseFacts&) { return true; });
}

std::vector<Phase> LoadingPhases() {
  return PhasesThat([](const PhaseFacts& facts) {
    return facts.mode == RunMode::kValues && !facts.trains && !facts.repeats_struck;
  });
}

std::vector<Phase> TrainingPhases() {
  return PhasesThat([](const PhaseFacts& facts) { return facts.trains; });
}

const char* NameOf(RunMode mode) { return mode == RunMode::kValues ? "values" : "memory"; }

std::string StartInWords(const PhaseFacts& facts) {
  if (facts.resumes) return fmt::format("what phase {} saved", NameOf(*facts.resumes));
  return facts.follows_struck ? "what the struck phase left" : "the source";
}

}  // namespace shardproof
