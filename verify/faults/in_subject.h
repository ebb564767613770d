// How a fault strikes a subject: a program that is not ours, and has none of our seams. Either its
// rank is told, and does it to itself, or its process is started so that it meets it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace shardproof {

/// What a rank does to itself when it has observed a stage, or before one of its collectives.
struct SubjectMoment {
  std::string act;  ///< "kill", "stop", "leave" or "slow" (shardproof/_faults.py)
  std::string stage = {};
  std::optional<int64_t> step = {};        ///< of the stage; nothing: whichever comes first
  std::optional<int64_t> collective = {};  ///< in place of a stage: its number on this rank, from 0
};

struct SubjectFault {
  std::optional<int64_t> rank;  ///< nothing: every one
  std::optional<SubjectMoment> moment = {};
};

}  // namespace shardproof
