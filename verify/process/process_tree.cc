#include "verify/process/process_tree.h"

#include <fmt/format.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <vector>

namespace shardproof {
namespace {

namespace fs = std::filesystem;

/// Of all its threads.
std::vector<pid_t> ChildrenOf(pid_t process) {
  std::vector<pid_t> children;
  std::error_code error;
  fs::directory_iterator task(fmt::format("/proc/{}/task", process), error);
  for (; !error && task != fs::directory_iterator(); task.increment(error)) {
    std::ifstream list(task->path() / "children");
    for (pid_t child = 0; list >> child;) children.push_back(child);
  }
  return children;
}

/// Stops each before its children are listed, so that it starts no more of them.
void Stop(pid_t process, std::vector<pid_t>& stopped) {
  if (::kill(process, SIGSTOP) != 0) return;
  stopped.push_back(process);
  for (const pid_t child : ChildrenOf(process)) Stop(child, stopped);
}

}  // namespace

void KillTree(pid_t child) {
  std::vector<pid_t> stopped;
  Stop(child, stopped);
  for (const pid_t process : stopped) ::kill(process, SIGKILL);
}

}  // namespace shardproof
