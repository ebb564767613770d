// sharding.collectives_in_order: all ranks make the same collectives, on the same tensors, in the
// same order. A transport only sees sizes; a swapped pair of equal size passes it silently.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "verify/case/names.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::sharding::collectives_in_order {
namespace {

std::string Describe(const CollectiveRecord& record) {
  const std::string root = record.root >= 0 ? fmt::format(" from rank {}", record.root) : "";
  const std::string tensors = record.tensors.empty() ? "" : " of " + ListSome(record.tensors, 3);
  return fmt::format("{}{}{} ({} {})", record.op, root, tensors, record.count, record.dtype);
}

bool Alike(const CollectiveRecord& a, const CollectiveRecord& b) {
  return a.op == b.op && a.root == b.root && a.dtype == b.dtype && a.count == b.count &&
         a.tensors == b.tensors;
}

using Group = std::vector<int64_t>;

/// Every group of ranks that made a collective together; empty: all ranks.
std::set<Group> GroupsOf(const PhaseEvidence& phase) {
  std::set<Group> groups;
  for (const RankEvidence& rank : phase.ranks) {
    for (const CollectiveRecord& record : rank.collectives) groups.insert(record.group);
  }
  return groups;
}

bool IsIn(const Group& group, int64_t rank) {
  return group.empty() || std::find(group.begin(), group.end(), rank) != group.end();
}

/// What each rank did at each place in the sequence.
using Sequence = std::map<int64_t, std::map<int64_t, const CollectiveRecord*>>;

Sequence SequenceOf(const PhaseEvidence& phase, const Group& group, Judgement& judgement) {
  Sequence sequence;
  for (const RankEvidence& rank : phase.ranks) {
    for (const CollectiveRecord& record : rank.collectives) {
      if (record.group != group) continue;
      if (sequence[record.sequence].emplace(rank.rank, &record).second) continue;
      Finding finding = FindingAt(phase, {}, "", "repeated", {rank.rank},
                                  fmt::format("two collectives are numbered {}", record.sequence),
                                  {.collective = record.sequence});
      finding.failure_class = "verifier";
      judgement.Found(std::move(finding));
    }
  }
  return sequence;
}

/// What most ranks do here; of equals, what the lowest rank does.
const CollectiveRecord& Majority(const std::map<int64_t, const CollectiveRecord*>& here) {
  const CollectiveRecord* best = nullptr;
  size_t best_count = 0;
  std::vector<const CollectiveRecord*> counted;  // so that agreement costs one pass
  for (const auto& [rank, candidate] : here) {
    bool is_new = true;
    for (const CollectiveRecord* earlier : counted) is_new = is_new && !Alike(*earlier, *candidate);
    if (!is_new) continue;
    counted.push_back(candidate);
    size_t count = 0;
    for (const auto& [other, record] : here) count += Alike(*record, *candidate) ? 1 : 0;
    if (count > best_count) {
      best = candidate;
      best_count = count;
    }
  }
  return *best;
}

/// The first place at which ranks part; what follows is its consequence.
bool FindParting(const PhaseEvidence& phase, const Group& group, int64_t number,
                 const std::map<int64_t, const CollectiveRecord*>& here, Judgement& judgement) {
  const CollectiveRecord& expected = Majority(here);
  std::vector<int64_t> unlike;
  std::vector<int64_t> absent;
  for (const RankEvidence& rank : phase.ranks) {
    if (!IsIn(group, rank.rank)) continue;
    const auto record = here.find(rank.rank);
    if (record == here.end()) {
      // A rank that was cut short may have made it; one that closed its evidence did not.
      if (rank.closed) absent.push_back(rank.rank);
      continue;
    }
    judgement.Compared();
    if (!Alike(*record->second, expected)) unlike.push_back(rank.rank);
  }
  if (unlike.empty() && absent.empty()) return false;
  const bool differ = !unlike.empty();
  const std::string what = differ
                               ? fmt::format("collective {} is {}, on the other ranks {}", number,
                                             Describe(*here.at(unlike[0])), Describe(expected))
                               : fmt::format("collective {} is not made: {} on the other ranks",
                                             number, Describe(expected));
  Finding finding = FindingAt(phase, {}, "", differ ? "order" : "absent", differ ? unlike : absent,
                              what, {.collective = number});
  if (!expected.tensors.empty()) finding.tensor = expected.tensors[0];
  finding.expected = Describe(expected);
  if (differ) finding.seen = Describe(*here.at(unlike[0]));
  judgement.Found(std::move(finding));
  return true;
}

void CheckPhase(const Evidence& evidence, const PhaseEvidence& phase, Judgement& judgement) {
  for (const RankEvidence& rank : phase.ranks) {
    if (!rank.closed) {
      judgement.Inconclusive(
          fmt::format("rank {} of phase {} did not close its evidence: its later "
                      "collectives are not known",
                      rank.rank, phase.name()));
    }
  }
  const std::set<Group> groups = GroupsOf(phase);
  // The reference broadcasts; a framework need not, if every rank reads for itself.
  if (groups.empty() && IsReference(evidence) && phase.strategy != kPlainStrategy) {
    judgement.Inconclusive(fmt::format("no rank of phase {} recorded a collective", phase.name()));
  }
  for (const Group& group : groups) {
    for (const auto& [number, here] : SequenceOf(phase, group, judgement)) {
      if (FindParting(phase, group, number, here, judgement)) break;
    }
  }
}

/// For every sequence number, op, root, dtype, element count and logical tensors are the same
/// on all ranks, and all ranks make the same number of collectives.
void Check(const Evidence& evidence, Judgement& judgement) {
  std::vector<const PhaseEvidence*> phases = LoadPhases(evidence, judgement);
  if (evidence.Phase(Phase::kMemory) != nullptr) {
    const PhaseEvidence* memory = PhaseToJudge(evidence, Phase::kMemory, judgement);
    if (memory != nullptr) phases.push_back(memory);
  }
  for (const PhaseEvidence* phase : TrainPhases(evidence)) {
    if (phase->facts().trains) phases.push_back(phase);
  }
  for (const PhaseEvidence* phase : phases) {
    if (phase->ranks.size() > 1) CheckPhase(evidence, *phase, judgement);
  }
  judgement.Skipped("no phase has two ranks that make collectives: there is no order to keep");
}

const PropertyRegistration kRegistration{{
    .id = "sharding.collectives_in_order",
    .claim = "All ranks issue the same collectives, on the same tensors, in the same order.",
    .reads = {{{Phase::kValues, Phase::kPlain, Phase::kResume, Phase::kMemory, Phase::kTrain,
                Phase::kAgain, Phase::kTrainOnDevice, Phase::kTrainResume},
               {},
               "collectives"}},
    .tolerance = "none: equality",
    .source = "verl-project/verl#6365, pytorch/pytorch#75902 (class 3 mismatches pass in "
              "silence), huggingface/accelerate#3921",
    .killed_by = {"comm.two_broadcasts_swapped", "comm.buffers_in_pointer_order"},
    .check = Check,
    .capabilities = {"collectives"},
}};

}  // namespace
}  // namespace shardproof::sharding::collectives_in_order
