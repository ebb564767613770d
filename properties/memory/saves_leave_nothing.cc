// memory.saves_leave_nothing: a rank holds no more after many saves than after two.
#include <fmt/format.h>

#include <string>

#include "properties/memory/mib.h"
#include "verify/verdict/select.h"

namespace shardproof::memory::saves_leave_nothing {
namespace {

// The first save makes what stays: threads' heaps, tables of names. What later ones add is pages
// that the heap could not give back.
constexpr int64_t kSlackBytes = 1 << 20;

void CheckRank(const PhaseEvidence& phase, const RankEvidence& rank, Judgement& judgement) {
  const std::vector<int64_t>& after = rank.memory->after_saves_bytes;
  for (size_t save = 2; save < after.size(); ++save) {
    judgement.Compared();
    if (after[save] <= after[1] + kSlackBytes) continue;
    const auto grown = static_cast<uint64_t>(after[save] - after[1]);
    Finding finding =
        FindingAt(phase, std::string(NameOf(Stage::kSaved)), "", "growth", {rank.rank},
                  fmt::format("after save {} the rank holds {} more than after save 2; {} allowed",
                              save + 1, MiB(grown), MiB(kSlackBytes)));
    finding.expected = fmt::format("at most {} bytes", after[1] + kSlackBytes);
    finding.seen = fmt::format("{} bytes", after[save]);
    finding.in_message = {.expected = false, .seen = false};
    judgement.Found(std::move(finding));
    return;
  }
}

void Check(const Evidence& evidence, Judgement& judgement) {
  const PhaseEvidence* phase = PhaseToJudge(evidence, Phase::kMemory, judgement);
  if (phase == nullptr) return;
  if (evidence.test_case.saves < 3) {
    judgement.Skipped("the case saves no more than twice");
    return;
  }
  for (const RankEvidence& rank : phase->ranks) {
    if (!rank.memory) {
      judgement.Inconclusive(fmt::format("rank {} left no memory record", rank.rank));
      continue;
    }
    CheckRank(*phase, rank, judgement);
  }
}

const PropertyRegistration kRegistration{{
    .id = "memory.saves_leave_nothing",
    .claim = "A rank holds no more after many saves than after two.",
    .reads = {{{Phase::kMemory}, {}, "memory of each rank"}},
    .tolerance = "1 MiB: pages that the heap does not give back",
    .source = "a job that saves for weeks must not grow with each save",
    .killed_by = {"memory.save_keeps_its_copies"},
    .check = Check,
    .case_needs = R"({"saves": 4})",
}};

}  // namespace
}  // namespace shardproof::memory::saves_leave_nothing
