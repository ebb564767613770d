// A property: one truth that must hold, as a pure function from evidence to findings. One file a
// property; the file registers itself; its id is its path (properties/loading/no_meta_left.cc is
// loading.no_meta_left).
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "src/core/result.h"
#include "verify/evidence/evidence.h"
#include "verify/verdict/finding.h"

namespace shardproof {

/// What of a finding that is not kept tells it from others; its property is the judgement's.
struct LeftOut {
  std::string kind;
  std::string failure_class;
  std::string stage;
  std::string tensor;
};

/// What a property found, built up while it looks. The verdict follows from what was done: findings
/// make it fail; no comparison made is inconclusive, or a skip if a reason was given.
class Judgement {
 public:
  /// Counts comparisons made; each would have been a finding had it not held.
  void Compared(uint64_t count = 1) { comparisons_ += count; }
  void Found(Finding finding) { findings_.push_back(std::move(finding)); }
  /// Why nothing (or not everything) could be judged here. Makes the property a skip only if no
  /// comparison was made.
  void Skipped(std::string reason);
  /// What was not compared, and by the job's own design need not be: a pass says so.
  void NotCompared(std::string reason);
  /// What should have been judged and could not be: inconclusive, unless there are findings.
  /// The first reason is kept, and how many others there were.
  void Inconclusive(std::string reason);

  Verdict verdict() const;
  /// Why it is not a plain pass or fail; what was left out, if anything.
  std::string reason() const;
  uint64_t comparisons() const { return comparisons_; }
  const std::vector<Finding>& findings() const { return findings_; }
  std::vector<Finding>& findings() { return findings_; }
  /// Keeps the first `kept` findings, and of the others only what they are.
  void KeepFindings(size_t kept);
  const std::vector<LeftOut>& left_out() const { return left_out_; }
  /// Also those that are not kept.
  size_t FindingCount() const { return findings_.size() + left_out_.size(); }

 private:
  uint64_t comparisons_ = 0;
  std::vector<Finding> findings_;
  std::vector<LeftOut> left_out_;
  std::string skip_reason_;
  std::string not_compared_;
  uint64_t not_compared_count_ = 0;
  std::string inconclusive_reason_;
  uint64_t inconclusive_count_ = 0;
};

/// What a property reads of some phases.
struct Reading {
  std::vector<Phase> phases;
  std::vector<Stage> stages = {};  ///< at which it reads tensors
  std::string records = {};        ///< what else, in words that no code reads
};

/// Their names, for people; of EveryPhase() "every phase" alone.
std::vector<std::string> PhasesOf(const Reading& reading);
std::vector<std::string> StagesOf(const Reading& reading);

/// Where tensors have to be for a property to have something to judge.
enum class JudgedOn { kAny, kHost, kDevice };

struct Property {
  std::string id;
  std::string claim;  ///< one sentence that is true when it holds
  /// What is not read need not be launched where nothing else is judged.
  std::vector<Reading> reads;
  std::string tolerance;  ///< "bit-exact", or the bound and where it comes from
  std::string source;     ///< definition, issue or documentation that the claim rests on
  /// Planted bugs that must turn it red; "subject.NAME" is fixtures/subjects/NAME.py.
  std::vector<std::string> killed_by;
  std::function<void(const Evidence&, Judgement&)> check;
  std::vector<std::string> capabilities = {};  ///< skipped for a subject that lacks one of them
  bool needs_processes = false;  ///< reads what ranks that are threads of one process do not leave
  JudgedOn judged_on = JudgedOn::kAny;
  /// Fields of a Case, as JSON, without which it has nothing to judge.
  std::string case_needs = "{}";
  bool needs_twin_steps = false;  ///< reads what the plain twin makes of a subject's steps
  bool only_subjects = false;     ///< is about what the reference does not have

  /// Whether it reads anything of the phase.
  bool Reads(Phase phase) const;
};

/// "values, plain: ready; every phase: collectives"
std::string ReadsInWords(const Property& property);

/// Something that a subject may say it cannot do.
struct Capability {
  std::string name;
  std::string meaning;  ///< what a subject that has it does
};

const std::vector<Capability>& KnownCapabilities();

/// All registered properties, sorted by id. Two with one id end the process.
const std::vector<Property>& AllProperties();

struct PropertyRegistration {
  explicit PropertyRegistration(Property property);
};

/// The named properties, each once, in id order; all if `ids` is empty.
/// \error kBadInput naming the ids that are not known and listing those that are.
Result<std::vector<const Property*>> SelectProperties(const std::vector<std::string>& ids);

/// One property's outcome on one body of evidence. A check that throws is inconclusive.
struct PropertyResult {
  std::string id;
  Judgement judgement;
};

/// The most findings that are kept of one property. The others are counted, and the last one kept
/// says how many these are.
inline constexpr size_t kFindingCountMax = 20;

/// Judges the named properties (all if `ids` is empty), in id order. An id that is not known (ask
/// SelectProperties first) is an inconclusive result that lists the known ones.
std::vector<PropertyResult> Judge(const Evidence& evidence, const std::vector<std::string>& ids);

/// The worst verdict of them; inconclusive if there are none.
Verdict WorstVerdict(const std::vector<PropertyResult>& results);

/// Every capture that the findings want, each once: what a second run of the same case must record
/// for the exact elements to be named.
std::vector<CaptureRequest> WantedCaptures(const std::vector<PropertyResult>& results);

}  // namespace shardproof
