// What is verified, as far as it can be known without running it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/launch/launcher.h"

namespace shardproof {

struct Subject {
  std::string name;  ///< "reference", or the file's name without ".py"
  std::map<std::string, std::string> cannot = {};  ///< capability -> why it lacks it
  /// Ways of working that it lets one choose: name -> values, the first of which is the default.
  std::map<std::string, std::vector<std::string>> options = {};
  std::map<std::string, std::vector<std::string>> shows = {};  ///< as Evidence::shows
  /// With which of its options only rank 0 reads the checkpoint, "OPTION=VALUE"; empty: with all.
  std::vector<std::string> reads = {};
  bool builds = false;  ///< whether it takes the model that the case has, so that any will do
  bool adapts = false;  ///< whether it asks for the adapter that the case has

  bool OnlyRank0Reads(const std::map<std::string, std::string>& chosen) const;
};

/// How Python subjects are run.
struct PythonOptions {
  std::string python;     ///< interpreter, with torch
  std::string package;    ///< folder of the package `shardproof`
  std::string digest_op;  ///< the built torch.ops.shardproof.digest
  /// What Gloo connects over if the environment does not say; empty: as Gloo finds it.
  std::string interface = "lo";
};

/// Reads what a subject declares, without running any of its code.
/// \error kBadInput if there is no such file, it is not Python, has no `def run(case, observe)`, or
///   declares that it lacks a capability that nobody knows.
Result<Subject> DeclareSubject(const std::string& subject, const PythonOptions& options);

/// \error kBadInput naming an option of the Case that the subject does not declare, or its value.
Status CheckOptions(const Subject& subject, const std::map<std::string, std::string>& options);

/// In a child: what the environment of a subject's process is besides ours.
/// \param scratch   directory for what libraries cache, and for the way to the package.
void SetSubjectEnvironment(const PythonOptions& options, const std::string& scratch);

/// What starts `python`, which runs `code` with sys imported and `arguments` as sys.argv[1:].
std::vector<std::string> PythonWords(const std::string& python, const std::string& code,
                                     const std::vector<std::string>& arguments);

/// In a child: becomes the program, looked up in PATH.
[[noreturn]] void Exec(const std::vector<std::string>& words);

/// Ranks that run a Python subject: forked by a standing process that has torch imported; in a
/// memory run, or where PhaseRun asks for it, each starts from nothing.
std::unique_ptr<Launcher> MakeSubjectLauncher(PythonOptions options);

}  // namespace shardproof
