#include "src/comm/process_state.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

namespace shardproof {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// One machine, and what of it a PID means the same in.
std::string Here() {
  std::error_code error;
  const auto pids = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  return FirstLine("/proc/sys/kernel/random/boot_id") + " " + (error ? "?" : pids.string());
}

/// The state of a process and when it began, of /proc/PID/stat; empty: there is none.
/// \source proc(5): field 3 is the state, field 22 the time; field 2 may hold anything in
/// parentheses.
std::vector<std::string> StatOf(const std::string& pid) {
  const std::string line = FirstLine("/proc/" + pid + "/stat");
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return {};
  std::istringstream rest(line.substr(end + 1));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  constexpr size_t kBegan = 22 - 3;
  if (fields.size() <= kBegan) return {};
  return {fields[0], fields[kBegan]};
}

}  // namespace

std::string NameOfThisProcess() {
  const std::string pid = std::to_string(::getpid());
  const auto stat = StatOf(pid);
  return fmt::format("{} {} {}", Here(), pid, stat.empty() ? "?" : stat[1]);
}

ProcessState StateOfProcess(const std::string& name) {
  std::istringstream parts(name);
  std::string boot, pids, pid, began;
  if (!(parts >> boot >> pids >> pid >> began) || boot + " " + pids != Here()) {
    return ProcessState::kUnknown;
  }
  const auto stat = StatOf(pid);
  if (stat.empty() || stat[1] != began || stat[0] == "Z" || stat[0] == "X") {
    return ProcessState::kGone;
  }
  return stat[0] == "T" || stat[0] == "t" ? ProcessState::kStopped : ProcessState::kRunning;
}

bool IsStopped(pid_t pid) {
  const auto stat = StatOf(std::to_string(pid));
  return !stat.empty() && stat[0] == "T";
}

/// \source Documentation/scheduler/sched-stats of Linux: /proc/PID/schedstat has the nanoseconds
/// run, those waited on a run queue, and the number of time slices.
std::chrono::nanoseconds WaitForProcessor(pid_t pid) {
  std::istringstream fields(FirstLine("/proc/" + std::to_string(pid) + "/schedstat"));
  int64_t ran = 0, waited = 0;
  if (!(fields >> ran >> waited)) waited = 0;
  return std::chrono::nanoseconds(waited);
}

std::string PidOf(const std::string& name) {
  std::istringstream parts(name);
  std::string boot, pids, pid;
  return parts >> boot >> pids >> pid ? pid : "?";
}

}  // namespace shardproof
