// What the ranks of a job hold, stage by stage, and what that comes to on each node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verify/evidence/evidence.h"

namespace shardproof {

struct RankMemory {
  int64_t rank = 0;
  std::string host;
  HeldRecord held;

  /// Tensors of these kinds, on the host in anonymous memory or on any device. Bytes.
  uint64_t HostTensors(const std::vector<std::string>& kinds) const;
  uint64_t DeviceTensors(const std::vector<std::string>& kinds) const;
  uint64_t Allocated() const;      ///< on all its devices
  uint64_t PeakAllocated() const;  ///< likewise, so far
  uint64_t Peak() const;           ///< anonymous memory at most since the stage before, as known
};

/// The ranks of one host together. A page that several of them map is counted once.
struct NodeMemory {
  std::string host;
  int64_t ranks = 0;
  uint64_t anonymous = 0;
  std::optional<uint64_t> shared;  ///< none if a rank could not tell its share
  std::optional<uint64_t> file;    ///< likewise
  uint64_t peak = 0;               ///< sum of the ranks' own peaks: at most so much at once
  uint64_t pinned = 0;
  uint64_t allocated = 0;
  uint64_t peak_allocated = 0;
};

struct StageMemory {
  std::string stage;  ///< "stepped@3"
  std::vector<RankMemory> ranks;
  std::vector<NodeMemory> nodes;  ///< by host
};

/// Stages in the order first reached; none if no rank has recorded what it held.
std::vector<StageMemory> MemoryByStage(const Evidence& evidence);

/// What a rank needed to load: anonymous memory at most above what it had when it began, in bytes,
/// until its model was ready.
struct LoadingMemory {
  int64_t rank = 0;
  uint64_t peak = 0;
  std::optional<uint64_t> plain_peak;  ///< likewise by the plain way, if that was measured
};

/// By rank, of a run with a phase that samples memory.
std::vector<LoadingMemory> MemoryOfLoading(const Evidence& evidence);

/// Kinds of HeldTensors that make up a model, and what is kept to train it.
inline const std::vector<std::string> kOfModel = {"parameter", "buffer"};
inline const std::vector<std::string> kOfTraining = {"gradient", "optimizer"};
inline const std::vector<std::string> kOfOthers = {"other"};

}  // namespace shardproof
