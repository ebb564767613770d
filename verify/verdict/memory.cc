#include "verify/verdict/memory.h"

#include <algorithm>
#include <map>

namespace shardproof {
namespace {

bool IsIn(const std::vector<std::string>& kinds, const std::string& kind) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

NodeMemory SumOf(const std::string& host, const std::vector<const RankMemory*>& ranks) {
  NodeMemory node{.host = host, .ranks = static_cast<int64_t>(ranks.size())};
  const bool all_tell = std::all_of(ranks.begin(), ranks.end(), [](const RankMemory* rank) {
    return rank->held.proportional.has_value();
  });
  if (all_tell) node.shared = node.file = 0;
  for (const RankMemory* rank : ranks) {
    const HeldRecord& held = rank->held;
    node.anonymous += all_tell ? held.proportional->anonymous : held.host.anonymous;
    node.peak += rank->Peak();
    node.pinned += held.pinned.value_or(0);
    node.allocated += rank->Allocated();
    node.peak_allocated += rank->PeakAllocated();
    if (!all_tell) continue;
    *node.shared += held.proportional->shared;
    *node.file += held.proportional->file;
  }
  return node;
}

std::vector<NodeMemory> NodesOf(const std::vector<RankMemory>& ranks) {
  std::map<std::string, std::vector<const RankMemory*>> by_host;
  for (const RankMemory& rank : ranks) by_host[rank.host].push_back(&rank);
  std::vector<NodeMemory> nodes;
  for (const auto& [host, own] : by_host) nodes.push_back(SumOf(host, own));
  return nodes;
}

/// A rank's records, each into the stage of its key; a new stage comes after the one before it.
void Add(const RankEvidence& rank, std::vector<StageMemory>& stages) {
  size_t at = 0;
  for (const HeldRecord& held : rank.held) {
    const std::string key = held.Key();
    auto stage = std::find_if(stages.begin(), stages.end(),
                              [&](const StageMemory& each) { return each.stage == key; });
    if (stage == stages.end()) {
      stage = stages.insert(stages.begin() + static_cast<int64_t>(at), StageMemory{.stage = key});
    }
    at = static_cast<size_t>(stage - stages.begin()) + 1;
    std::vector<RankMemory>& ranks = stage->ranks;
    if (ranks.empty() || ranks.back().rank != rank.rank) {
      ranks.push_back({.rank = rank.rank, .host = rank.host, .held = held});
      continue;
    }
    // The stage was reached again: it is as it was left, and its peak the higher one.
    std::optional<HeldPeak> peak = std::move(ranks.back().held.peak);
    ranks.back().held = held;
    if (peak && (!held.peak || peak->anonymous > held.peak->anonymous)) {
      ranks.back().held.peak = std::move(peak);
    }
  }
}

/// A sample bears the name of the last stage that was reached.
std::optional<uint64_t> PeakOfLoading(const RankEvidence& rank) {
  if (!rank.memory) return std::nullopt;
  const uint64_t idle = rank.memory->idle_bytes;
  uint64_t peak = idle;
  for (const MemorySample& sample : rank.memory->samples) {
    if (sample.stage == NameOf(Stage::kReady)) return peak - idle;
    peak = std::max(peak, sample.anonymous_bytes);
  }
  return std::nullopt;  // never ready
}

}  // namespace

uint64_t RankMemory::HostTensors(const std::vector<std::string>& kinds) const {
  uint64_t bytes = 0;
  for (const HeldTensors& one : held.tensors) {
    if (IsIn(kinds, one.of) && one.device == "cpu") bytes += one.anonymous;
  }
  return bytes;
}

uint64_t RankMemory::DeviceTensors(const std::vector<std::string>& kinds) const {
  uint64_t bytes = 0;
  for (const HeldTensors& one : held.tensors) {
    if (IsIn(kinds, one.of) && one.device != "cpu") bytes += one.bytes;
  }
  return bytes;
}

uint64_t RankMemory::Allocated() const {
  uint64_t bytes = 0;
  for (const HeldDevice& one : held.devices) bytes += one.allocated;
  return bytes;
}

uint64_t RankMemory::PeakAllocated() const {
  uint64_t bytes = 0;
  for (const HeldDevice& one : held.devices) bytes += one.peak_allocated;
  return bytes;
}

uint64_t RankMemory::Peak() const {
  return std::max(held.host.anonymous, held.peak ? held.peak->anonymous : 0);
}

std::vector<StageMemory> MemoryByStage(const Evidence& evidence) {
  std::vector<StageMemory> stages;
  for (const PhaseEvidence& phase : evidence.phases) {
    for (const RankEvidence& rank : phase.ranks) Add(rank, stages);
    if (!stages.empty()) break;
  }
  for (StageMemory& stage : stages) stage.nodes = NodesOf(stage.ranks);
  return stages;
}

std::vector<LoadingMemory> MemoryOfLoading(const Evidence& evidence) {
  std::vector<LoadingMemory> ranks;
  const PhaseEvidence* measured = evidence.Phase(Phase::kMemory);
  if (measured == nullptr) return ranks;
  const PhaseEvidence* plain = evidence.Phase(Phase::kMemoryPlain);
  for (size_t i = 0; i < measured->ranks.size(); ++i) {
    const std::optional<uint64_t> peak = PeakOfLoading(measured->ranks[i]);
    if (!peak) continue;
    ranks.push_back({.rank = measured->ranks[i].rank, .peak = *peak});
    if (plain != nullptr && i < plain->ranks.size())
      ranks.back().plain_peak = PeakOfLoading(plain->ranks[i]);
  }
  return ranks;
}

}  // namespace shardproof
