// What a run came to, as one value: everything that the terminal, JSON, JUnit and HTML reports
// show.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "verify/evidence/evidence.h"
#include "verify/verdict/memory.h"
#include "verify/verdict/property.h"

namespace shardproof {

struct SkippedPhase {
  Phase phase = Phase::kValues;
  std::string reason;
};

/// What the verdict rests on, and what it does not.
struct Compared {
  uint64_t comparisons = 0;
  int64_t ranks = 0;                ///< of the first phase that ran: the one the case is about
  int64_t hosts = 0;                ///< machines that its ranks ran on, as far as they say
  std::vector<std::string> stages;  ///< names of complete stages, in the order first reached
  std::vector<Phase> phases;        ///< that ran
  std::vector<SkippedPhase> skipped;
  std::vector<HeldCount> held;  ///< of the first phase's tensors at `ready`
};

/// What the list of known failures says of a finding.
struct KnownAs {
  std::string owner;
  std::string issue;
  std::string expires;  ///< the last day of it, "2026-12-31"
  std::string why;      ///< in the owner's words, or empty
  bool is_expired = false;
};

/// What a gate has made of the verdict (verify/gate). Without one all of it is empty.
struct GateNotes {
  bool is_used = false;
  std::map<std::string, KnownAs> known;  ///< findings that are on the list, by fingerprint
  size_t known_count = 0;                ///< findings that are known and not expired
  size_t expired_count = 0;
  std::set<std::string> known_properties;  ///< of which all findings are known
  std::vector<std::string> notes;          ///< a sentence each
};

struct RunResult {
  Case test_case;
  Verdict verdict = Verdict::kInconclusive;
  int exit_code = 3;
  std::vector<PropertyResult> properties;
  /// Something failed where ranks stand from launch to launch, and not in processes that start from
  /// nothing; by itself that is inconclusive.
  bool failed_only_reused = false;
  GateNotes gate;
  std::vector<std::string> faults;  ///< of the case, each in plain words
  Compared compared;
  std::vector<StageMemory> memory;            ///< of a job that was observed
  std::vector<LoadingMemory> loading_memory;  ///< of a subject
  uint64_t tensor_count = 0;                  ///< that the model must have
  double duration_ms = 0;
  std::map<std::string, std::string> versions;  ///< "shardproof", "torch", ...
  std::vector<std::string> command_line;
  std::string evidence_directory;
  std::string report_path;   ///< of the HTML report, or empty
  std::string next_command;  ///< what to do about a failure; see MakeRunResult

  /// From the cause on: what shows earliest in the run is the likeliest cause of the others. What a
  /// gate knows comes last.
  std::vector<const Finding*> Findings() const;
  /// Also of those that no property has kept.
  size_t FindingCount() const;
  /// Whether a gate lets it pass.
  bool IsKnown(const Finding& finding) const;
};

/// 0 pass, 1 fail, 3 inconclusive, 77 skip. (2, 4 and 5 are not verdicts; the caller sets them.)
int ExitCodeOf(Verdict verdict);

/// Fills all that follows from the evidence and the judgements: verdict, exit code, what was
/// compared, and `shardproof replay DIRECTORY` as next command. No property at all is inconclusive.
RunResult MakeRunResult(const Evidence& evidence, std::vector<PropertyResult> properties,
                        const std::string& evidence_directory);

}  // namespace shardproof
