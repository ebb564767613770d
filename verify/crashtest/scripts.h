// Writes bad states down, each with a script that shows it without Shardproof.
#pragma once

#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/crashtest/crash_text.h"
#include "verify/crashtest/run.h"

namespace shardproof::crashtest {

/// A few of each group, 20 in all: DIRECTORY/01/ and so on, with state/, reproduce.py and
/// report.md. Each script is run: it must exit with 1. \param directory  exists and is empty \error
/// kFailed if something cannot be written
Result<std::vector<Script>> WriteScripts(const Options& options, const Outcome& outcome,
                                         const std::string& directory, const Progress& progress);

}  // namespace shardproof::crashtest
