// The phases of a verification, each of them one launch of the subject, and what is true of each:
// one table.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/result.h"

namespace shardproof {

/// What a phase is looked at for. kValues: fresh allocations are poisoned, every tensor is
/// digested. kMemory: nothing is poisoned, memory is sampled.
enum class RunMode { kValues, kMemory };

enum class Phase {
  kValues,
  kPlain,
  kResume,
  kOneReads,
  kTrain,
  kAgain,
  kTrainOnDevice,
  kTrainResume,
  kMemory,
  kMemoryPlain,
  kAfter,
  kUndisturbed,
  kUndisturbedAgain,
};

/// When the reference's copies to and from a device arrive. Copies that are late show what does not
/// wait for them; copies that are early, what they overwrite.
enum class CopiesArrive { kAtOnce, kWhenWaitedFor, kBySeed };

struct PhaseFacts {
  Phase phase;
  const char* name;  ///< as evidence, reports and directories spell it
  const char* what;  ///< what runs, for people
  RunMode mode = RunMode::kValues;
  /// Does nothing but restore what this phase saved; else it starts from the source.
  std::optional<Phase> resumes = std::nullopt;
  bool on_resume_mesh = false;  ///< on the Case's resume_mesh, else on its mesh
  bool trains = false;          ///< takes the Case's optimizer steps
  bool saves = false;           ///< saves a checkpoint, if the subject can
  bool may_be_struck = false;   ///< faults strike here, if StruckPhase says so
  /// Is the struck phase once more without faults, and trains and saves as that does. What they
  /// leave is held against each other.
  bool repeats_struck = false;
  bool follows_struck = false;  ///< and starts from what the struck phase has left
  bool is_plain = false;        ///< a yardstick: by the plain strategy, and without a planted bug
  bool offloads = true;         ///< the host does what the Case says; else the device has no limit
  bool one_reads = false;       ///< ranks other than 0 find other values in the checkpoint
  bool only_shown = false;      ///< judged by nothing: a report shows it beside another phase
  CopiesArrive copies = CopiesArrive::kBySeed;
};

/// A row for each, in the order of the enumeration.
inline constexpr std::array kPhases = {
    PhaseFacts{.phase = Phase::kValues,
               .name = "values",
               .what = "The model is loaded, sharded, saved and restored, as the case says. Memory "
                       "that nothing fills shows as NaN.",
               .saves = true,
               .may_be_struck = true},
    PhaseFacts{.phase = Phase::kPlain,
               .name = "plain",
               .what = "The model is loaded by the plain strategy, in which every rank reads "
                       "everything, to compare with.",
               .is_plain = true},
    PhaseFacts{.phase = Phase::kResume,
               .name = "resume",
               .what = "What was saved is restored on another mesh.",
               .resumes = Phase::kValues,
               .on_resume_mesh = true},
    PhaseFacts{
        .phase = Phase::kOneReads,
        .name = "one_reads",
        .what =
            "A subject that reads on rank 0 alone loads once more. The other ranks find a "
            "checkpoint with other values, so that right values there can only come from rank 0.",
        .one_reads = true},
    PhaseFacts{.phase = Phase::kTrain,
               .name = "train",
               .what = "The job takes optimizer steps and saves. The steps after the last save run "
                       "twice: uninterrupted, and from what was saved.",
               .trains = true,
               .saves = true,
               .may_be_struck = true,
               .copies = CopiesArrive::kWhenWaitedFor},
    PhaseFacts{.phase = Phase::kAgain,
               .name = "again",
               .what = "The job takes the same steps undisturbed, to tell whether they are "
                       "deterministic.",
               .trains = true,
               .copies = CopiesArrive::kAtOnce},
    PhaseFacts{.phase = Phase::kTrainOnDevice,
               .name = "train_on_device",
               .what = "The job takes the same steps, none of them on the host.",
               .trains = true,
               .offloads = false},
    PhaseFacts{.phase = Phase::kTrainResume,
               .name = "train_resume",
               .what = "What the training job saved is restored on another mesh, where the "
                       "reference takes the rest of its steps.",
               .resumes = Phase::kTrain,
               .on_resume_mesh = true,
               .trains = true},
    PhaseFacts{.phase = Phase::kMemory,
               .name = "memory",
               .what = "The model is loaded and saved once more, unpoisoned, with memory sampled.",
               .mode = RunMode::kMemory,
               .saves = true},
    PhaseFacts{.phase = Phase::kMemoryPlain,
               .name = "memory_plain",
               .what = "The model is loaded by the plain strategy, with memory sampled, so that a "
                       "report can show both.",
               .mode = RunMode::kMemory,
               .is_plain = true,
               .only_shown = true},
    PhaseFacts{.phase = Phase::kAfter,
               .name = "after",
               .what = "The phase that a fault struck runs once more without the fault, in the "
                       "directory that it left.",
               .repeats_struck = true,
               .follows_struck = true},
    PhaseFacts{
        .phase = Phase::kUndisturbed,
        .name = "undisturbed",
        .what = "The phase that a fault struck runs without the fault, in an empty directory.",
        .repeats_struck = true},
    PhaseFacts{.phase = Phase::kUndisturbedAgain,
               .name = "undisturbed_again",
               .what = "A subject that trains runs the undisturbed phase once more, to tell "
                       "whether it is deterministic.",
               .repeats_struck = true},
};

constexpr const PhaseFacts& FactsOf(Phase phase) { return kPhases[static_cast<size_t>(phase)]; }
constexpr const char* NameOf(Phase phase) { return FactsOf(phase).name; }
/// Empty if there is none.
constexpr const char* NameOf(const std::optional<Phase>& phase) {
  return phase ? NameOf(*phase) : "";
}

/// \error kBadInput, listing the known phases.
Result<Phase> ParsePhase(std::string_view name);

std::vector<Phase> EveryPhase();
/// Those that load a model, digest it and train nothing; not what repeats the struck phase.
std::vector<Phase> LoadingPhases();
std::vector<Phase> TrainingPhases();

/// "values" or "memory".
const char* NameOf(RunMode mode);

/// What a phase starts from, for people: "the source", "what phase values saved".
std::string StartInWords(const PhaseFacts& facts);

static_assert(
    [] {
      for (size_t i = 0; i < kPhases.size(); ++i) {
        if (kPhases[i].phase != static_cast<Phase>(i)) return false;
      }
      return kPhases.back().phase == Phase::kUndisturbedAgain;
    }(),
    "a phase's row is not in its place");

}  // namespace shardproof
