// Case after case of a generator's stream, run by workers side by side and judged by every
// property.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "verify/campaign/summary.h"
#include "verify/campaign/workers.h"
#include "verify/engine/verification.h"
#include "verify/generate/generate.h"
#include "verify/launch/subject.h"

namespace shardproof {

struct SoakOptions {
  GenerateOptions generate;
  Subject subject;
  PythonOptions python;
  uint64_t seed = 0;
  uint64_t first = 0;             ///< index of the first case of the stream
  std::optional<uint64_t> cases;  ///< how many of it; absent: until the time is over
  std::string only;  ///< a feature: cases of the stream that lack it are passed over; empty: none
  std::optional<std::chrono::milliseconds> time;
  std::vector<Case> corpus;  ///< run before the stream
  bool keep_going = false;   ///< else it ends with the first case that does not pass
  size_t jobs = 0;           ///< workers; 0: one a core, two for ranks that are processes
  std::string bug;           ///< planted in every case, or empty
  std::vector<std::string> properties;  ///< judge only these; empty: all
  std::string directory;                ///< for scratch files; must exist
  /// Told now and then how it stands; what it says is not acted on.
  std::function<void(const SoakSummary&)> progress;
  /// The same of shrinking: the smallest case so far, and how many were run.
  std::function<void(const Case&, uint64_t)> shrink_progress;
};

/// Why a soak ended.
enum class SoakEnd { kDone, kTime, kFailure, kSignal };

/// Goes on from `summary`, and with it. Ends early on SIGTERM and SIGINT, which it takes over for
/// its time. \error kInternal if no worker can be made.
Result<SoakEnd> Soak(const SoakOptions& options, SoakSummary& summary);

/// Runs cases as SoakOptions says, one after the other, in one process.
class CaseRunner {
 public:
  /// \param directory  for scratch files; made, and empty before each case.
  /// \param isolated  each case has processes of its own; else simulated ranks are threads of this
  /// process,
  ///   which they may take along, and others stand from case to case.
  CaseRunner(const SoakOptions& options, std::string directory, bool isolated)
      : options_(options), directory_(std::move(directory)), isolated_(isolated) {}
  CaseOutcome Run(const Case& test_case);

 private:
  std::unique_ptr<Launcher> LauncherFor(const Case& test_case) const;
  VerifyOptions OptionsOfVerify() const;
  /// Runs a case that has failed in processes that had run others, and not in fresh ones, in a
  /// second set of processes, after it has run there once. \returns nothing if it does not fail
  /// there.
  std::optional<CaseOutcome> RunInSecond(const Case& test_case) const;

  const SoakOptions& options_;
  std::string directory_;
  bool isolated_;
  std::map<std::string, std::unique_ptr<Launcher>> launchers_;  ///< kept from case to case
};

/// Workers that each have a CaseRunner of these options, which outlive them.
/// \param name  of their directories. \param simulated  whether all cases are.
/// \param case_of  the case that an order stands for.
Workers CaseWorkers(const SoakOptions& options, const std::string& name, bool isolated,
                    bool simulated, std::function<Result<Case>(const std::string& order)> case_of);

}  // namespace shardproof
