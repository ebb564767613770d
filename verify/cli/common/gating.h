// The options of a gate, and what a command about files does with them.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/gate/gate.h"

namespace shardproof {

/// Heading of the options of a gate.
inline constexpr const char* kGateOptions = "Gates and CI";

/// --summary, --report-url, --known, --min-comparisons, --baseline and --prom.
void AddGateOptions(CLI::App& command, gate::Options& options);

/// Opens the gate of a command that reads `inputs`. \param json  what --json names
/// \error kBadInput: as of Gate::Open, or what is to be written is what is read.
Result<gate::Gate> OpenGate(const gate::Options& options, const std::vector<std::string>& inputs,
                            const std::string& json);

/// Why a command ends without a verdict, for its page. \returns the same
const std::string& NoteRefusal(const std::string& why);

/// Writes the files that the gate of this process was asked for, if a command ends without a
/// verdict after that.
void WriteRefusal(const std::string& command, int exit_code);

/// Judges, shows the result and writes the files. The text says first what a gate has made of the
/// verdict, and the document gets `comparisons`, `properties` and `gate`.
/// \param json  as of ShowResult
/// \returns the exit code
Result<int> Conclude(const gate::Gate& gate, gate::Outcome outcome, const std::string& text,
                     nlohmann::json document, const std::string& json);

}  // namespace shardproof
