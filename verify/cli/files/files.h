// The subcommands about files alone, which need no LibTorch.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace shardproof {

/// Each adds its subcommand to `app`; when that is the one called, *exit_code is set by the time
/// parsing returns.
void AddCompare(CLI::App& app, int* exit_code);
void AddAudit(CLI::App& app, int* exit_code);
void AddSeal(CLI::App& app, int* exit_code);
void AddClean(CLI::App& app, int* exit_code);
void AddCrashtest(CLI::App& app, int* exit_code);
void AddMapPlan(CLI::App& app, int* exit_code);

/// Whether these words ask for one subject on several releases of a framework.
bool IsOfVersions(const std::vector<std::string>& command_line);

/// Becomes the Python program that runs them. \returns only if it cannot: the exit code.
int RunVersions(const std::vector<std::string>& command_line);

}  // namespace shardproof
