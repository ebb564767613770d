// memory.host_peak: no rank needs more host memory than its own shards and one bucket.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "properties/memory/mib.h"
#include "verify/case/names.h"
#include "verify/verdict/select.h"

namespace shardproof::memory::host_peak {
namespace {

/// At most the model's bytes: replicated tensors count on every rank.
uint64_t ModelBytes(const PhaseEvidence& phase) {
  uint64_t bytes = 0;
  for (const RankEvidence& rank : phase.ranks) {
    if (rank.memory) bytes += rank.memory->own_shard_bytes + rank.memory->device_own_shard_bytes;
  }
  return bytes;
}

/// When the rank first went beyond the bound, from its samples.
std::string FirstBeyond(const MemoryRecord& memory, uint64_t limit, bool is_reference) {
  for (const MemorySample& sample : memory.samples) {
    if (sample.anonymous_bytes <= memory.idle_bytes + limit) continue;
    return fmt::format(", first exceeded after {:.0f} ms, {} `{}`", sample.time_ms,
                       is_reference ? "working on" : "since", sample.stage);
  }
  return "";
}

/// One finding for all ranks, told by the one furthest beyond: no two peaks need be alike to the
/// page, and some are.
void CheckRanks(const Case& test_case, const PhaseEvidence& phase, Judgement& judgement) {
  const uint64_t model_bytes = ModelBytes(phase);
  const uint64_t allowed = test_case.bucket_bytes + test_case.host_slack_bytes;
  std::vector<int64_t> beyond;
  const RankEvidence* worst = nullptr;
  uint64_t worst_excess = 0, worst_used = 0;
  for (const RankEvidence& rank : phase.ranks) {
    if (!rank.memory || rank.memory->peak_bytes == 0) {
      judgement.Inconclusive(fmt::format("rank {} left no memory record", rank.rank));
      continue;
    }
    if (model_bytes <= allowed) {
      judgement.Skipped(
          fmt::format("the model has {}, less than one bucket and the slack ({}): a "
                      "full copy would not show",
                      MiB(model_bytes), MiB(allowed)));
      continue;
    }
    const MemoryRecord& memory = *rank.memory;
    const uint64_t used = memory.peak_bytes - std::min(memory.idle_bytes, memory.peak_bytes);
    const uint64_t limit = memory.own_shard_bytes + allowed;
    judgement.Compared();
    if (used <= limit) continue;
    beyond.push_back(rank.rank);
    if (used - limit <= worst_excess) continue;
    worst = &rank;
    worst_excess = used - limit;
    worst_used = used;
  }
  if (worst == nullptr) return;
  const MemoryRecord& memory = *worst->memory;
  const uint64_t limit = memory.own_shard_bytes + allowed;
  const std::string whose =
      beyond.size() == 1 ? ""
                         : fmt::format(" on rank {}, the furthest above the limit", worst->rank);
  Finding finding = FindingAt(
      phase, memory.peak_stage, "", "peak", beyond,
      fmt::format("host peak {} above idle{}; {} allowed: {} own shards + {} bucket + {} slack{}",
                  MiB(worst_used), whose, MiB(limit), MiB(memory.own_shard_bytes),
                  MiB(test_case.bucket_bytes), MiB(test_case.host_slack_bytes),
                  FirstBeyond(memory, limit, test_case.subject == "reference")),
      {.limit_bytes = limit});
  finding.expected = fmt::format("at most {} bytes", limit);
  finding.seen = fmt::format("{} bytes", worst_used);
  finding.in_message = {.expected = false, .seen = false};
  judgement.Found(std::move(finding));
}

/// peak_bytes - idle_bytes <= own_shard_bytes + bucket_bytes + host_slack_bytes, on every rank;
/// anonymous memory, so that the page cache of mapped files is not counted.
void Check(const Evidence& evidence, Judgement& judgement) {
  const PhaseEvidence* phase = PhaseToJudge(evidence, Phase::kMemory, judgement);
  if (phase == nullptr) return;
  if (phase->strategy == kPlainStrategy) {
    judgement.Skipped(
        "strategy plain promises no bound: every rank holds a full copy while it loads");
    return;
  }
  CheckRanks(evidence.test_case, *phase, judgement);
}

const PropertyRegistration kRegistration{{
    .id = "memory.host_peak",
    .claim = "No rank needs more host memory than its own shards, one bucket and the stated slack.",
    .reads = {{{Phase::kMemory}, {}, "memory of each rank"}},
    .tolerance = "host_slack_bytes of the case: allocator, threads and transport, not tensors",
    .source = "huggingface/transformers#44473, #45649, areal-project/AReaL#1182",
    .killed_by = {"memory.every_rank_loads_all", "memory.full_copy_kept",
                  "subject.every_rank_loads_all"},
    .check = Check,
    .capabilities = {"host_bound"},
}};

}  // namespace
}  // namespace shardproof::memory::host_peak
