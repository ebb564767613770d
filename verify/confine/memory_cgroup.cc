#include "verify/confine/memory_cgroup.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace shardproof {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMiB = 1 << 20;

/// What the files of one version of the interface are called.
struct Version {
  std::string own;      ///< the directory of this process's own cgroup
  std::string parent;   ///< where others may be made
  const char* limit;    ///< the file with the limit, bytes
  const char* no_swap;  ///< and that on what goes beyond it to disk
  const char* kills;    ///< the file with a line "oom_kill N"
};

/// The path in the line of /proc/self/cgroup whose second field is `controllers`.
/// \source cgroups(7): "hierarchy-ID:controller-list:cgroup-path"
std::string PathIn(const std::string& controllers) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    if (line.substr(first + 1, second - first - 1) == controllers) return line.substr(second + 1);
  }
  return "";
}

/// The directory of a cgroup, or that of the mount, if the path is none of what is mounted here.
std::string DirectoryOf(const std::string& mount, const std::string& path) {
  std::error_code error;
  return fs::exists(mount + path, error) ? mount + path : mount;
}

Version VersionHere() {
  std::error_code error;
  const std::string first = "/sys/fs/cgroup/memory";
  if (fs::exists(first + "/memory.limit_in_bytes", error)) {
    const std::string own = DirectoryOf(first, PathIn("memory"));
    return {own, own, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control"};
  }
  // Version 2 allows none below one with processes in it, but for the root.
  const std::string second = "/sys/fs/cgroup";
  return {DirectoryOf(second, PathIn("")), second, "memory.max", "memory.swap.max",
          "memory.events"};
}

/// Below it each child of the process `of` may make one, named by its PID.
std::string FamilyOf(pid_t of) { return fmt::format("{}/shardproof-{}", VersionHere().parent, of); }

int64_t KillsIn(const std::string& directory) {
  std::ifstream file(directory + "/" + VersionHere().kills);
  int64_t count = 0;
  for (std::string name; file >> name >> count;) {
    if (name == "oom_kill") return count;
  }
  return 0;
}

Status WriteTo(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file ? Ok() : Failed(fmt::format("{}: {}", path, std::strerror(errno)));
}

Status MakeOne(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) == 0 || errno == EEXIST) return Ok();
  return Failed(fmt::format("{}: {}", path, std::strerror(errno)));
}

void RemoveFamily(pid_t of) {
  std::error_code error;
  const std::string family = FamilyOf(of);
  for (fs::directory_iterator it(family, error), end; !error && it != end; it.increment(error)) {
    if (it->is_directory()) ::rmdir(it->path().c_str());
  }
  ::rmdir(family.c_str());
}

/// Removes what launchers have left that were killed.
void RemoveOrphans() {
  std::error_code error;
  const std::string prefix = "shardproof-";
  for (fs::directory_iterator it(VersionHere().parent, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const auto pid = static_cast<pid_t>(std::strtol(name.c_str() + prefix.size(), nullptr, 10));
    if (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH) RemoveFamily(pid);
  }
}

Status TryToMakeOne() {
  const std::string family = FamilyOf(::getpid());
  const std::string one = family + "/try";
  SP_TRY(MakeOne(family));
  // Of version 2 controllers are given on by name; of version 1 there is no such file.
  const std::string given_on = family + "/cgroup.subtree_control";
  if (fs::exists(given_on)) SP_TRY(WriteTo(given_on, "+memory"));
  SP_TRY(MakeOne(one));
  return WriteTo(one + "/" + VersionHere().limit, std::to_string(16 * kMiB));
}

}  // namespace

std::string WhyNoMemoryCgroup() {
  static const std::string why = []() -> std::string {
    RemoveOrphans();
    const Status made = TryToMakeOne();
    RemoveFamily(::getpid());
    return made.ok() ? "" : "a memory cgroup is not permitted here: " + made.error().message;
  }();
  return why;
}

Status EnterMemoryCgroup(uint64_t limit_bytes) {
  const std::string family = FamilyOf(::getppid());
  SP_TRY(MakeOne(family));
  if (fs::exists(family + "/cgroup.subtree_control")) {
    SP_TRY(WriteTo(family + "/cgroup.subtree_control", "+memory"));
  }
  const std::string own = fmt::format("{}/{}", family, ::getpid());
  SP_TRY(MakeOne(own));
  const Version version = VersionHere();
  SP_TRY(WriteTo(own + "/" + version.limit, std::to_string(limit_bytes)));
  // Where swap is not accounted for there is no such file, or none that takes it.
  (void)WriteTo(own + "/" + version.no_swap, std::string(version.no_swap) == "memory.swap.max"
                                                 ? "0"
                                                 : std::to_string(limit_bytes));
  return WriteTo(own + "/cgroup.procs", std::to_string(::getpid()));
}

OomWatch::OomWatch() : own_kills_(KillsIn(VersionHere().own)) {}

std::string OomWatch::WhyKilled(pid_t pid) const {
  const Version version = VersionHere();
  const std::string its = fmt::format("{}/{}", FamilyOf(::getpid()), pid);
  if (KillsIn(its) > 0) {
    uint64_t limit = 0;
    std::ifstream(its + "/" + version.limit) >> limit;
    return fmt::format("out of memory: the kernel's OOM kill in its cgroup, limit {} MiB",
                       limit / kMiB);
  }
  if (KillsIn(version.own) > own_kills_) {
    return "out of memory: the kernel's OOM kill in the cgroup of this job";
  }
  return "";
}

void RemoveCgroups() { RemoveFamily(::getpid()); }

}  // namespace shardproof
