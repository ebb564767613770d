// The subcommands of `shardproof`, one file each.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "verify/cli/execute.h"

namespace shardproof {

/// Exit codes that are not verdicts; pass 0, fail 1, inconclusive 3 and skip 77 are in result.h.
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitHang = 4;
inline constexpr int kExitBroken = 5;
inline constexpr int kExitSkipped = 77;

/// Each adds its subcommand to `app`; when that is the one called, *exit_code is set by the time
/// parsing returns. \param command_line as it was typed, for reports.
void AddVerify(CLI::App& app, const std::vector<std::string>& command_line, int* exit_code);
void AddReplay(CLI::App& app, const std::vector<std::string>& command_line, int* exit_code);
void AddShrink(CLI::App& app, int* exit_code);
void AddReport(CLI::App& app, const std::vector<std::string>& command_line, int* exit_code);
void AddCompare(CLI::App& app, int* exit_code);
void AddAudit(CLI::App& app, int* exit_code);
void AddSeal(CLI::App& app, int* exit_code);
void AddList(CLI::App& app, int* exit_code);

/// The case of a file, or of the run that a report or evidence directory holds. \error kBadInput
Result<Case> ReadCaseOf(const std::string& path);

/// For CLI11: a path from an unset variable of a shell is a mistake, not the absence of an option.
std::string NotEmpty(const std::string& text);

/// --property, --report and --json, of every subcommand that judges.
void AddOutputOptions(CLI::App& command, ExecuteOptions& options);

}  // namespace shardproof
