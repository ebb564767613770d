// How a fault strikes a subject: a program that is not ours, and has none of our seams. Either its
// rank is told, and does it to itself, or its process is started so that it meets it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "verify/fault/trigger.h"
#include "verify/trace/file_op.h"

namespace shardproof {

/// What a rank does to itself when it has observed a stage, or before one of its collectives.
struct SubjectMoment {
  std::string act;  ///< "kill", "stop", "leave" or "slow" (shardproof/_rank/_faults.py)
  std::optional<Stage> stage = {};
  std::optional<int64_t> step = {};        ///< of the stage; nothing: whichever comes first
  std::optional<int64_t> collective = {};  ///< in place of a stage: its number on this rank, from 0
};

/// System calls of a rank about files, where it saves or what it loads, that fail or take long.
struct SubjectCalls {
  std::optional<Trigger> trigger;  ///< nothing: only fiu-ctrl makes them fail
  std::set<FileOp> ops;
  int error_number = 0;  ///< what they fail with; 0: they do not
  bool from_then_on = false;
  bool half = false;  ///< of a write, the first half is done
  std::chrono::milliseconds delay{0};
};

struct SubjectFault {
  std::optional<int64_t> rank;  ///< nothing: every one
  std::optional<SubjectMoment> moment = {};
  std::optional<SubjectCalls> calls = {};
  /// Of the rank's process, which then starts from nothing; LD_PRELOAD is added to what is there.
  std::map<std::string, std::string> environment = {};

  bool NeedsOwnProcess() const { return calls || !environment.empty(); }
};

}  // namespace shardproof
