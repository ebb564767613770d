// What a finding knows besides its sentence, as data: programs read these fields and no sentence.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "verify/case/phase.h"
#include "verify/evidence/stage_key.h"

namespace shardproof {

/// What a tensor, or something about it, is held against.
struct Against {
  enum class What {
    kNothing,
    kCheckpoint,  ///< the source
    kInitial,     ///< what initialisation must give it
    kTwin,        ///< what the plain twin has
    kPlain,       ///< what it is at `ready` where every rank loads everything
    kFormula,     ///< what a formula gives: of a buffer, of a step
    kDeclared,    ///< what the model declares
    kPlacements,  ///< what its placements give
    kEarlier,     ///< what it was itself, at an earlier stage
    kFrozen,      ///< likewise, and it must not change
    kModel,       ///< what the model has at the same moment, of a state dict
    kStage,       ///< what it is at a stage of this or of another phase
    kRank,        ///< what a rank has, at the same stage if none is named
    kReplica,     ///< what the first rank that has it has
  };
  What what = What::kNothing;
  std::optional<Phase> phase = {};
  StageKey stage = {};
  std::optional<int64_t> rank = {};

  /// "the checkpoint", "`ready` of phase values", "rank 0 at `loaded`": as sentences have it.
  std::string Words() const;
};

nlohmann::json AgainstToJson(const Against& against);

/// Empty or unset fields do not apply.
struct Facts {
  Against against = {};
  std::string cause = {};   ///< the likely cause in a word: "zeros", "flipped-bit", "signal 9"
  std::string other = {};   ///< the other tensor: tied or aliased, the one whose value is held, ...
  std::string option = {};  ///< of an optimizer's group
  std::string keys = {};    ///< "missing" or "unexpected": what the pipeline was to say of keys
  std::string file = {};    ///< of a checkpoint, or the directory of a step
  std::optional<int64_t> step = {};          ///< of a training job, where the stage does not say it
  std::optional<uint64_t> limit_bytes = {};  ///< the most that is allowed
  std::optional<int64_t> ulp_max = {};       ///< how far a value may be from `expected`
  std::optional<int64_t> collective = {};    ///< its number within its group
  std::string exit = {};                     ///< how the rank ended: "signal 9", "exit 3", "hang"
  std::string raised = {};                   ///< the type of a subject's exception: "ValueError"
};

}  // namespace shardproof
