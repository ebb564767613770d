// memory.device_peak: no rank needs more of a device's memory than its own shards and one bucket.
#include <fmt/format.h>

#include "properties/memory/mib.h"
#include "verify/case/names.h"
#include "verify/verdict/select.h"

namespace shardproof::memory::device_peak {
namespace {

void CheckRank(const Case& test_case, const PhaseEvidence& phase, const RankEvidence& rank,
               Judgement& judgement) {
  if (!rank.memory || rank.memory->peak_bytes == 0) {
    judgement.Inconclusive(fmt::format("rank {} left no memory record", rank.rank));
    return;
  }
  const MemoryRecord& memory = *rank.memory;
  const uint64_t limit =
      memory.device_own_shard_bytes + test_case.bucket_bytes + test_case.host_slack_bytes;
  judgement.Compared();
  if (memory.device_peak_bytes <= limit) return;
  Finding finding = FindingAt(
      phase, Stage::kReady, "", "peak", {rank.rank},
      fmt::format("device peak {}; {} allowed: {} own shards + {} bucket + {} slack",
                  MiB(memory.device_peak_bytes), MiB(limit), MiB(memory.device_own_shard_bytes),
                  MiB(test_case.bucket_bytes), MiB(test_case.host_slack_bytes)),
      {.limit_bytes = limit});
  finding.expected = fmt::format("at most {} bytes", limit);
  finding.seen = fmt::format("{} bytes", memory.device_peak_bytes);
  finding.in_message = {.expected = false, .seen = false};
  judgement.Found(std::move(finding));
}

/// device_peak_bytes <= device_own_shard_bytes + bucket_bytes + host_slack_bytes, on every
/// rank.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (evidence.test_case.device == "cpu") {
    judgement.Skipped("every tensor is in the host's memory");
    return;
  }
  const PhaseEvidence* phase = PhaseToJudge(evidence, Phase::kMemory, judgement);
  if (phase == nullptr) return;
  if (phase->strategy == kPlainStrategy) {
    judgement.Skipped(
        "strategy plain promises no bound: every rank holds a full copy while it loads");
    return;
  }
  for (const RankEvidence& rank : phase->ranks) {
    CheckRank(evidence.test_case, *phase, rank, judgement);
  }
}

const PropertyRegistration kRegistration{{
    .id = "memory.device_peak",
    .claim = "No rank needs more of a device's memory than its own shards, a bucket and the slack.",
    .reads = {{{Phase::kMemory}, {}, "memory of each rank's device"}},
    .tolerance = "host_slack_bytes of the case: what a model makes on the device itself before it "
                 "is sharded; allocations are counted, not pages",
    .source = "modelscope/twinkle#117, areal-project/AReaL#1182",
    .killed_by = {"memory.full_copy_on_device"},
    .check = Check,
    .capabilities = {"host_bound"},
    .judged_on = JudgedOn::kDevice,
}};

}  // namespace
}  // namespace shardproof::memory::device_peak
