// What a judged run comes to on the command line: where its reports go, what is printed, how it
// exits.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/case/case.h"
#include "verify/gate/gate.h"
#include "verify/verdict/run_result.h"

namespace shardproof {

struct ExecuteOptions {
  std::string report;     ///< directory for report.html, junit.xml, result.json, evidence; or empty
  std::string json;       ///< file for the machine-readable result; "-" is stdout; or empty
  std::string python;     ///< interpreter for a Python subject; empty: the command's own
  std::string save_to;    ///< keep the saved checkpoint here; or empty
  bool is_quick = false;  ///< one phase, once, and no reproducer
  bool mesh_is_asked = false;           ///< --mesh was given
  bool is_drawn = false;                ///< the model is EveryKindOfTensor, since none was given
  bool confirms = true;                 ///< what failed is run again in fresh processes
  bool explain = false;                 ///< show each property that was skipped, with its reason
  std::vector<std::string> properties;  ///< judge only these
  std::vector<std::string> command_line;
  gate::Options gate;
  bool redacts = false;  ///< the Markdown reports of findings have no values
};

/// Heading of the options below.
inline constexpr const char* kResults = "Results";

/// --property, --report, --json, --explain, and what a gate is asked for, of every subcommand that
/// judges.
void AddOutputOptions(CLI::App& command, ExecuteOptions& options);

/// The interpreter of the job's environment.
std::string PythonOf(const ExecuteOptions& options);

/// \error kBadInput if a report or a result would be written into the checkpoint of the case.
Status CheckOutputs(const Case& test_case, const ExecuteOptions& options);

/// The gate that the options ask for. \error kBadInput: as of OpenGate.
Result<gate::Gate> GateOf(const ExecuteOptions& options, const std::string& input);

/// Judges by the gate, writes the reports that are asked for and prints the terminal's.
/// \returns the exit code.
int Present(RunResult& result, const ExecuteOptions& options, const gate::Gate& gate);

/// Prints why nothing was run. \returns the exit code: that of a skip, if no gate asks for more.
int Skip(const std::string& why, const ExecuteOptions& options, const std::string& target);

/// Rewritten in place on a terminal, silent in a log that has the report anyway; empty: none.
void ShowProgress(const std::string& line);

/// Says on stderr what is wrong. \returns the exit code.
int Complain(const Error& error);

}  // namespace shardproof
