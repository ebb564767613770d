// A planted bug: one mistake that people really make, put into the reference pipeline by replacing
// one leaf or decorating one seam. One file a bug, under fixtures/bugs/; the file registers itself;
// its id is its file name with the first underscore as a dot (loading_buffers_reallocated.cc is
// loading.buffers_reallocated).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/contract/job.h"
#include "src/contract/stages.h"
#include "src/core/result.h"

namespace shardproof {

struct PlantedBug {
  std::string id;
  std::string mistake;                         ///< one sentence: what is done wrong
  std::string kind = {};                       ///< one of KindsOfMistake(); empty: of none
  std::string seen_in;                         ///< public reports of it
  std::vector<std::string> killed_by;          ///< properties that must turn red, each on its own
  std::string smallest_case;                   ///< case JSON, the smallest that shows it
  std::function<void(Stages&, World&)> plant;  ///< called on every rank before the pipeline runs
};

/// A kind of mistake on the path from a checkpoint to a sharded, offloaded, checkpointed job, as
/// public bug reports show it.
struct KindOfMistake {
  std::string name;
  std::string mistake;
};

const std::vector<KindOfMistake>& KindsOfMistake();

/// What a build without tests says of them.
inline constexpr const char* kWithoutBugs =
    "this build has no planted bugs; they are compiled with SHARDPROOF_TESTS, as ci/test does";

/// All registered bugs, sorted by id. Two with one id end the process. None in a build without
/// tests.
const std::vector<PlantedBug>& AllBugs();
/// \error kBadInput for an unknown id, with the known ones.
Result<PlantedBug> FindBug(const std::string& id);

struct BugRegistration {
  explicit BugRegistration(PlantedBug bug);
};

}  // namespace shardproof
