// What a pipeline makes of a verdict: known failures do not fail it, and one that compared less
// than it should is inconclusive. README.md says what each option means.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "verify/gate/known.h"
#include "verify/verdict/run_result.h"

namespace shardproof::gate {

/// As they are given on the command line; empty: not given.
struct Options {
  std::string summary;     ///< file for the Markdown of a run's page
  std::string report_url;  ///< where that page finds the report
  std::string known;       ///< file of known failures
  std::string prometheus;  ///< file for Prometheus
  std::string baseline;    ///< the JSON result of an earlier run
  std::optional<uint64_t> min_comparisons;
  std::string made;  ///< a directory that the run makes, which may hold the files; or empty

  /// Whether one is given that decides.
  bool Decides() const { return !known.empty() || !baseline.empty() || min_comparisons; }
  bool Any() const { return Decides() || !summary.empty() || !prometheus.empty(); }
};

/// A finding, by what tells it from others.
struct Item {
  std::string property;
  std::string kind;
  std::string failure_class = "code";
  std::string stage;
  std::string tensor;
  std::string message;           ///< empty: it was counted and not kept
  std::optional<KnownAs> known;  ///< set by Gate::Judge where an entry matches
  std::string fingerprint() const;
  bool IsNew() const { return !known || known->is_expired; }
};

/// One row of the table: a property, or a part of what a command compares.
struct Row {
  std::string id;
  Verdict verdict = Verdict::kSkip;
  uint64_t comparisons = 0;
  uint64_t findings = 0;
  std::string
      reason;  ///< why it is no plain pass or fail; of a fail: what else could not be judged
  bool is_known = false;  ///< set by Gate::Judge: all its findings are known
};

/// What any command came to.
struct Outcome {
  std::string command;  ///< "verify"
  std::string target;   ///< what was judged, in a few words
  Verdict verdict = Verdict::kInconclusive;
  int exit_code = 3;
  std::string reason;  ///< why inconclusive or skipped, where no row says it
  std::vector<Row> rows;
  std::vector<Item> items;  ///< the likeliest cause first
  uint64_t comparisons = 0;
  double duration_ms = 0;          ///< 0: not measured
  bool is_drawn = false;           ///< of generated cases: other seeds compare another number
  std::string report;              ///< where the report lies, or empty
  std::vector<std::string> notes;  ///< set by Gate::Judge: a sentence each
  bool is_refused = false;  ///< it came to no verdict: bad input, or the verifier itself is broken
  bool is_headed = true;    ///< what is printed of it begins with the verdict
  bool is_gated = false;    ///< set by Gate::Judge: by an option that decides

  size_t KnownCount() const;
  size_t ExpiredCount() const;
  size_t NewCount() const;  ///< also the expired ones
};

/// What an earlier run compared.
struct Baseline {
  std::string path;
  uint64_t comparisons = 0;
  std::map<std::string, uint64_t> properties;
};

/// \error kBadInput naming the file: it cannot be read, is no result of --json, or compared
/// nothing.
Result<Baseline> ReadBaseline(const std::string& path);

/// Comparisons that are this part of the baseline's, or more, are enough.
inline constexpr double kEnoughOfBaseline = 0.9;

/// The files that the options name, read before anything is run.
class Gate {
 public:
  /// \param today  on which known failures are looked at, "2026-11-27"
  /// \error kBadInput: a file or a URL that is wrong.
  static Result<Gate> Open(const Options& options, const std::string& today = Today());

  /// Sets verdict, exit code and notes.
  void Judge(Outcome& outcome) const;
  /// The files that were asked for. \error kBadInput naming the one that cannot be written.
  Status Write(const Outcome& outcome) const;
  const Options& options() const { return options_; }

 private:
  void ApplyKnown(Outcome& outcome) const;
  std::vector<std::string> WhyTooFew(const Outcome& outcome) const;

  Options options_;
  std::vector<KnownFailure> known_;
  std::optional<Baseline> baseline_;
};

/// Of a run of ranks. \param command  as of Outcome
Outcome OutcomeOf(const RunResult& result, const std::string& command);
/// Owner, issue, last day and whether it has expired.
nlohmann::json KnownToJson(const KnownAs& as);
/// How many findings are new, known and expired, and the notes.
nlohmann::json GateToJson(const Outcome& outcome);
/// Writes back what the gate has made of it.
void Apply(const Outcome& outcome, RunResult& result);

/// "pass, 3 known findings"; "fail, 5 findings, 3 of them known"
std::string VerdictInWords(const Outcome& outcome);

/// Markdown for the page of a CI run: GitHub's, where no name can become markup.
std::string Summary(const Outcome& outcome, const std::string& report_url);
/// The text format of Prometheus, for the textfile collector of its node exporter.
/// \param now  seconds since 1970
std::string Metrics(const Outcome& outcome, int64_t now);

}  // namespace shardproof::gate
