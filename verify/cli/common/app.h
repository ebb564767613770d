// What every subcommand shares, those about files and those of the engine.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/result.h"

namespace shardproof {

/// Exit codes that are not verdicts; pass is 0, fail 1.
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitInconclusive = 3;
inline constexpr int kExitHang = 4;
inline constexpr int kExitBroken = 5;
inline constexpr int kExitSkipped = 77;

/// What --help says of them, where a subcommand has no other.
inline constexpr const char* kExitCodesHelp =
    "Exit codes: 0 pass, 1 fail, 2 usage or bad input, 3 inconclusive, 4 hang, 5 the verifier\n"
    "itself is broken, 77 skipped.";

/// Headings of the list of subcommands: what a user has.
inline constexpr const char* kCheckpointDoor = "You have checkpoints";
inline constexpr const char* kJobDoor =
    "You have a job (in it, call shardproof.check or shardproof.observe)";
inline constexpr const char* kFrameworkDoor = "You have a framework, or a change to one";
inline constexpr const char* kCrashDoor = "You have a program that saves, and machines that crash";

/// A subcommand about files. The engine does not have them, but names them in its --help.
struct FileCommand {
  const char* name;
  const char* door;
  const char* description;
};

inline constexpr std::array<FileCommand, 5> kFileCommands = {{
    {"compare", kCheckpointDoor,
     "Compare two checkpoints bit for bit, whatever their formats and sharding"},
    {"audit", kCheckpointDoor,
     "Check that a checkpoint, or each one of a run, is complete, readable and as it was sealed"},
    {"seal", kCheckpointDoor,
     "Write the digests of a checkpoint to a file that audit checks it against"},
    {"clean", kCheckpointDoor, "List what earlier runs left below a directory, or remove it"},
    {"crashtest", kCrashDoor, "Load from every state that a crash during a save can leave on disk"},
}};

/// Adds the one of this name to `app`, without options. \returns it.
CLI::App* AddFileCommand(CLI::App& app, std::string_view name);

/// Parses, and so runs the subcommand called. \returns the exit code of the process: exit_code,
/// unless the words are wrong or the verifier fails.
int RunApp(CLI::App& app, const std::vector<std::string>& command_line, const int& exit_code);

/// Becomes `module` of the Python package. \returns only if it cannot: the exit code.
int BecomePython(const std::string& module, const std::vector<std::string>& words);

/// Shows a result, as JSON if `json` is "-" and else as text, and writes it to the file `json` if
/// that is one. \error kBadInput if the file cannot be written.
Status ShowResult(const std::string& text, const std::string& document, const std::string& json);

/// Says what is wrong. \returns the exit code for it.
int Refuse(const Error& error);

/// For CLI11: a path from an unset variable of a shell is a mistake, not the absence of an option.
std::string NotEmpty(const std::string& text);

}  // namespace shardproof
