// Generated cases for the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "verify/campaign/campaign.h"
#include "verify/cli/execute.h"

namespace shardproof {

struct SoakArguments {
  std::optional<uint64_t> cases;
  std::optional<double> minutes;
  uint64_t first = 0;
  uint64_t seed = 0;
  int64_t world = 0;
  std::string transport;
  std::string subject;  ///< absolute path, or empty
  std::string bug;
  std::string only;    ///< a feature of the cases that are run, or empty
  std::string corpus;  ///< directory of case files, or empty
  bool keep_going = false;
  bool resume = false;  ///< go on from what `execute.json` has
  size_t jobs = 0;
  std::optional<uint64_t> shrink_runs;  ///< not given: as is usual for the subject
  ExecuteOptions execute;
};

/// \returns the exit code.
int RunSoak(const SoakArguments& arguments);

/// Plants bugs in generated cases and tells which properties see them.
/// \param arguments  cases: at most so many of each bug; bug: "all" or ids, comma-separated.
/// \returns the exit code: 1 if one is not seen by a property that must see it.
int RunAdequacy(const SoakArguments& arguments);

/// Shrinks a case that fails, tells how far, and prints or writes the smallest.
/// \param property  whose finding is to stay; empty: the first one. \param out  a file, or empty:
/// stdout.
int RunShrink(const Case& failing, const std::string& property, std::optional<uint64_t> runs_max,
              const std::string& out, const ExecuteOptions& execute);

/// All cases as a gate sees them. Of the failing ones only the first few are kept, so that none is
/// ever known.
/// \param report  where that of the first failing case lies
gate::Outcome OutcomeOfSoak(const SoakOptions& options, const SoakSummary& summary, SoakEnd end,
                            const std::string& report);

}  // namespace shardproof
