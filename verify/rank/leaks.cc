#include "verify/rank/leaks.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

namespace shardproof {
namespace {

namespace fs = std::filesystem;

constexpr auto kThreadsEndWithin = std::chrono::seconds(1);

/// What a descriptor stands for: "/tmp/a", "socket", "pipe", "anon_inode:[eventpoll]".
std::string TargetOf(const fs::path& descriptor) {
  std::error_code error;
  const std::string target = fs::read_symlink(descriptor, error).string();
  for (const std::string kind : {"socket", "pipe"}) {
    if (target.starts_with(kind + ":")) return kind;  // numbers differ from one to the next
  }
  return target;
}

std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void AddDescriptors(std::map<std::string, int>& held) {
  std::error_code error;
  for (fs::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    const std::string target = TargetOf(it->path());
    if (!target.empty() && !target.starts_with("/proc/")) ++held["descriptor of " + target];
  }
}

void AddThreads(std::map<std::string, int>& held) {
  std::error_code error;
  for (fs::directory_iterator it("/proc/self/task", error), end; !error && it != end;
       it.increment(error)) {
    if (const std::string name = FirstLine(it->path() / "comm"); !name.empty()) {
      ++held["thread " + name];
    }
  }
}

/// Those that nobody has waited for are still there, whether they run or not.
void AddChildren(std::map<std::string, int>& held) {
  siginfo_t nobody{};
  if (::waitid(P_ALL, 0, &nobody, WEXITED | WNOHANG | WNOWAIT) != 0) return;  // there are none
  const std::string own = std::to_string(::getpid());
  std::error_code error;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const std::string line = FirstLine(it->path() / "stat");
    // proc(5): PID (name) state parent; the name may hold anything.
    const size_t open = line.find('('), close = line.rfind(") ");
    if (open == std::string::npos || close == std::string::npos) continue;
    std::istringstream rest(line.substr(close + 2));
    std::string state, parent;
    if (rest >> state >> parent && parent == own) {
      ++held["child process " + line.substr(open + 1, close - open - 1)];
    }
  }
}

/// Files that are mapped to be shared, as data are; what a process runs is mapped to be its own.
void AddMappedFiles(std::map<std::string, int>& held) {
  // proc(5): addresses permissions offset device inode path, the permissions ending with s or p.
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t permissions = line.find(' ') + 1, path = line.find('/');
    if (path == std::string::npos || line[permissions + 3] != 's') continue;
    const std::string file = line.substr(path);
    if (!file.starts_with("/dev/")) ++held["mapping of " + file];
  }
}

/// What this process has mapped, or made and named by its PID; what others have is none of it.
void AddSharedMemory(std::map<std::string, int>& held) {
  const std::string own = std::to_string(::getpid());
  const std::string folder = "/dev/shm/";
  std::set<std::string> names;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (const size_t at = line.find(folder); at != std::string::npos) names.insert(line.substr(at));
  }
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().find(own) != std::string::npos) names.insert(it->path());
  }
  for (const std::string& name : names) ++held["shared memory " + name];
  // proc(5): key shmid perms size cpid ..., the fifth is who made it.
  std::ifstream segments("/proc/sysvipc/shm");
  for (std::string line; std::getline(segments, line);) {
    std::istringstream fields(line);
    std::string key, id, permissions, size, maker;
    fields >> key >> id >> permissions >> size >> maker;
    if (maker == own) ++held[fmt::format("System V shared memory of {} bytes", size)];
  }
}

int Sum(const std::map<std::string, int>& held) {
  int sum = 0;
  for (const auto& [what, count] : held) sum += count;
  return sum;
}

/// What there is more of than before, a line each.
void AddMore(const std::map<std::string, int>& now, const std::map<std::string, int>& before,
             std::vector<std::string>& leaks) {
  for (const auto& [what, count] : now) {
    const auto earlier = before.find(what);
    const int more = count - (earlier == before.end() ? 0 : earlier->second);
    if (more == 1) leaks.push_back(what);
    if (more > 1) leaks.push_back(fmt::format("{} times: {}", more, what));
  }
}

}  // namespace

LeakWatch::Things LeakWatch::Held() const {
  Things held;
  AddDescriptors(held.others);
  AddThreads(held.threads);
  AddChildren(held.others);
  AddMappedFiles(held.others);
  AddSharedMemory(held.others);
  std::error_code error;
  for (fs::directory_iterator it(temporary_, error), end; !error && it != end;
       it.increment(error)) {
    ++held.others["temporary file " + it->path().filename().string()];
  }
  return held;
}

std::vector<std::string> LeakWatch::Since() const {
  // The kernel still lists a thread for a moment after it was joined.
  const auto give_up = std::chrono::steady_clock::now() + kThreadsEndWithin;
  std::vector<std::string> leaks = Now();
  while (!leaks.empty() && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    leaks = Now();
  }
  return leaks;
}

std::vector<std::string> LeakWatch::Now() const {
  const Things held = Held();
  std::vector<std::string> leaks;
  AddMore(held.others, before_.others, leaks);
  // A thread may take its name only when it first runs: names tell nothing unless there are more.
  if (Sum(held.threads) > Sum(before_.threads)) AddMore(held.threads, before_.threads, leaks);
  return leaks;
}

}  // namespace shardproof
