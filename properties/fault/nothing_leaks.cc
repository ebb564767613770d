// fault.nothing_leaks: a rank that ends, whatever struck it, has given back its descriptors,
// threads and mappings of files, and has left no process, shared memory or temporary file.
#include "verify/verdict/scope.h"
#include "verify/verdict/select.h"

namespace shardproof::fault::nothing_leaks {
namespace {

/// Every rank that came to its own end holds no descriptor, thread, child, mapping of a file,
/// shared memory or temporary file that it had not when it began; one of a subject no descriptor of
/// a file where it saves.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (evidence.test_case.faults.empty()) {
    judgement.Skipped("no fault was to be injected");
    return;
  }
  // What else a framework keeps for the life of its process is its own affair.
  if (!IsReference(evidence)) {
    judgement.Skipped(
        "threads, processes, shared memory and temporary files of a subject; looked at were the "
        "descriptors of files where it saves");
  }
  for (const PhaseEvidence& phase : evidence.phases) {
    if (phase.facts().mode != RunMode::kValues) continue;
    for (const RankEvidence& rank : phase.ranks) {
      if (!rank.leaks) continue;
      judgement.Compared();
      if (rank.leaks->empty()) continue;
      Finding finding = FindingAt(phase, {}, "", "leak", {rank.rank},
                                  "at its end, it still holds " + ListSome(*rank.leaks));
      finding.seen = ListSome(*rank.leaks);
      judgement.Found(std::move(finding));
    }
  }
  if (judgement.comparisons() > 0) return;
  if (evidence.test_case.transport == "sim") {
    judgement.Skipped("simulated ranks share one process");
  } else if (evidence.test_case.device == "cuda") {
    judgement.Skipped("a GPU's driver keeps descriptors and threads for the life of a process");
  } else {
    judgement.Inconclusive("no rank reached its end and looked");
  }
}

const PropertyRegistration kRegistration{{
    .id = "fault.nothing_leaks",
    .claim = "A rank that ends has released every descriptor, thread, process, mapped file, shared "
             "memory segment and temporary file, whatever fault was injected.",
    .reads = {{EveryPhase(), {}, "what processes hold when they end"}},
    .tolerance = "none",
    .source = "a job that is restarted in its process must find what it needs",
    .killed_by = {"fault.file_left_open", "fault.helper_left_running", "fault.mapping_left",
                  "fault.shared_memory_left", "fault.temporary_file_left",
                  "subject.file_left_open"},
    .check = Check,
    .needs_processes = true,
    .case_needs = R"({"as_stated": true, "faults": [{"id": "file/enospc", "where": "0"}]})",
}};

}  // namespace
}  // namespace shardproof::fault::nothing_leaks
