// Runs another program to its end and keeps what it said. No shell: a path is never a command.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"

namespace shardproof {

/// How a program ended and what it said.
struct ProgramEnd {
  std::string how;             ///< "ok", "exit 3", "signal 9", or "no end within 30 s"
  std::optional<int> exit;     ///< the code; none if a signal or the deadline ended it
  std::string output;          ///< stdout, at most kProgramOutputBytesMax of it
  bool output_is_cut = false;  ///< it said more
  std::string error_tail;      ///< the last bytes of stderr
  bool ok() const { return exit == 0; }
};

/// "no end within 0.5 s".
std::string NoEndWithin(std::chrono::milliseconds deadline);

/// "ok", "exit 3" or "signal 9", by what waitpid said.
std::string HowItEnded(int wait_status);

inline constexpr size_t kProgramOutputBytesMax = 16 << 20;

/// Runs `words[0]` (looked up in PATH) with the rest as its arguments, stdin empty. One that has
/// not ended by `deadline` is killed, with all that it has started. What outlives it is not waited
/// for, even if it holds the program's stdout. \error kBadInput if it cannot be started.
Result<ProgramEnd> RunProgram(const std::vector<std::string>& words,
                              std::chrono::milliseconds deadline);

}  // namespace shardproof
