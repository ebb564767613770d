// What a crash test found, for people and for machines.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "verify/crashtest/run.h"

namespace shardproof::crashtest {

/// A bad state that was written down for others. Its folder is named in the report.
struct Script {
  size_t bad = 0;        ///< index of CrashReport::bad
  std::string path;      ///< of reproduce.py
  bool is_seen = false;  ///< it was run, and showed the state as it is told
  std::string how;       ///< it ended otherwise
};

/// "pass", "fail" or "inconclusive", as the exit code is.
const char* VerdictOf(const Outcome& outcome);

std::string CrashText(const Options& options, const Outcome& outcome,
                      const std::vector<Script>& scripts);
nlohmann::json CrashJson(const Options& options, const Outcome& outcome,
                         const std::vector<Script>& scripts);

/// The command, as a shell takes it.
std::string CommandText(const std::vector<std::string>& words);
/// "the processes are killed", "the machine stops, on ext4", "the machine stops, on any file
/// system"
std::string ModelText(crash::CrashModel model);

}  // namespace shardproof::crashtest
