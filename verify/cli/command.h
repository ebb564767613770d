// The subcommands of `shardproof`, one file each.
#pragma once

#include <string>
#include <vector>

#include "verify/cli/common/app.h"
#include "verify/cli/common/report.h"
#include "verify/cli/execute.h"

namespace shardproof {

/// Each adds its subcommand to `app`; when that is the one called, *exit_code is set by the time
/// parsing returns. \param command_line as it was typed, for reports.
void AddVerify(CLI::App& app, const std::vector<std::string>& command_line, int* exit_code);
void AddReplay(CLI::App& app, const std::vector<std::string>& command_line, int* exit_code);
void AddShrink(CLI::App& app, int* exit_code);
void AddList(CLI::App& app, int* exit_code);

/// What `report` can do besides, with LibTorch: a twin, and faults in words.
ReportParts PartsOfReport();

/// The case of a file, or of the run that a report or evidence directory holds. \error kBadInput
Result<Case> ReadCaseOf(const std::string& path);

}  // namespace shardproof
