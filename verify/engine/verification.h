// One verification from a Case to a judged result: launch the phases, consult the oracle, judge;
// where a difference is known only to its block, run that phase again with those bytes captured and
// judge again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "verify/launch/launcher.h"
#include "verify/launch/subject.h"
#include "verify/verdict/run_result.h"

namespace shardproof {

struct VerifyOptions {
  Subject subject;
  std::string directory;                ///< for evidence and scratch files; must exist
  std::string save_to;                  ///< keeps the saved checkpoint here; empty: in `directory`
  std::vector<std::string> properties;  ///< judge only these; empty: all
  bool measures_memory = true;          ///< false: no phase is run for its memory alone
  bool to_be_shown = false;             ///< runs what only a report shows, too
  bool is_quick = false;                ///< launches the first phase, once, and no other
  bool mesh_is_asked = false;           ///< as Evidence has it
  bool confirms = true;                 ///< runs what failed again in processes of its own
  std::function<void(const std::string& line)> progress;  ///< told what begins
};

/// \error kBadInput for anything wrong with the case, the checkpoint or the options, in one line;
///   kInternal if the verifier cannot do its work.
Result<RunResult> Verify(const Case& test_case, Launcher& launcher, const VerifyOptions& options);

}  // namespace shardproof
