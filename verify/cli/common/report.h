// shardproof report, which judges with LibTorch or without.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/cli/common/present.h"
#include "verify/oracle/twin.h"

namespace shardproof {

/// What starts ranks, or knows what they run.
struct ReportParts {
  /// The plain twin of the Case's model, loaded from the checkpoint in the environment of the
  /// options. \error one line, for the report, why there is none.
  std::function<Result<oracle::Twin>(const Case&, const std::string& checkpoint,
                                     const ExecuteOptions&)>
      run_twin;
  /// The faults of a Case in plain words, in its order.
  std::function<std::vector<std::string>(const Case&)> describe_faults;
};

/// Of a command without an engine. \param why_none  one line
ReportParts NoPartsOfReport(const std::string& why_none);

/// Adds `report`; as those of files.h.
void AddReport(CLI::App& app, const std::vector<std::string>& command_line,
               const ReportParts& parts, int* exit_code);

}  // namespace shardproof
