// Whether the properties bite: every planted bug in generated cases, and which property sees it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "verify/bug/bug.h"
#include "verify/campaign/shrink.h"

namespace shardproof {

/// A property in the cases of one bug.
struct Catch {
  uint64_t cases = 0;             ///< in which it had findings
  std::optional<uint64_t> first;  ///< index of the first of them
};

/// A bug in its cases.
struct BugAdequacy {
  std::string bug;
  std::string transport;
  uint64_t cases = 0;      ///< that were run with it
  uint64_t pointless = 0;  ///< of them, in which it did nothing that any property is about
  std::map<std::string, Catch> together;  ///< by property, all judged in one run
  std::map<std::string, Catch> alone;     ///< by property that must see it, with all others off
  std::string how;                        ///< how the smallest case shows it: Signature::Text
  std::optional<Shrunk> smallest;         ///< that the first named property sees it in

  /// Every property that must see it did, alone too.
  bool IsCaught() const;
};

struct AdequacyOptions {
  SoakOptions soak;          ///< of which seed, world, jobs, directory and python are taken
  uint64_t cases_max = 400;  ///< of each bug
  uint64_t catches = 3;      ///< enough for a property; a bug is done when all of its have so many
  uint64_t shrink_runs = 500;
  std::function<void(const BugAdequacy&)> progress;  ///< told of each bug that is done
};

/// Bugs that only memory shows are planted in large cases of processes, all others in simulated
/// ones. \returns nothing if a signal came meanwhile. \error kInternal if no worker can be made.
Result<std::optional<BugAdequacy>> MeasureBug(const PlantedBug& bug,
                                              const AdequacyOptions& options);

/// By bug: in how many cases which property saw it, together and alone, and its smallest case.
nlohmann::json AdequacyToJson(const std::vector<BugAdequacy>& bugs);
/// One line of it, and the whole as a table.
std::string AdequacyLine(const BugAdequacy& bug);
std::string AdequacyTable(const std::vector<BugAdequacy>& bugs);

}  // namespace shardproof
