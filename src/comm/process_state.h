// What has become of another process, as far as this one can tell.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

namespace shardproof {

/// Names this process among those of all machines, for others to look for: boot, PID namespace, PID
/// and when it began.
std::string NameOfThisProcess();

enum class ProcessState {
  kUnknown,  ///< it is on another machine, or the name is no process's
  kRunning,
  kStopped,
  kGone,
};

ProcessState StateOfProcess(const std::string& name);

/// Whether a process of this machine is stopped by a signal, and not by a debugger.
bool IsStopped(pid_t pid);

/// How long the first thread of a process of this machine has waited for a processor since it
/// began; zero if the system does not tell.
std::chrono::nanoseconds WaitForProcessor(pid_t pid);

/// The PID in a name, or "?".
std::string PidOf(const std::string& name);

}  // namespace shardproof
