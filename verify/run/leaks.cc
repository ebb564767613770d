#include "verify/run/leaks.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>
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

const std::string kThread = "thread ";

int ThreadsOf(const std::map<std::string, int>& held) {
  int threads = 0;
  for (const auto& [what, count] : held) threads += what.starts_with(kThread) ? count : 0;
  return threads;
}

}  // namespace

LeakWatch::Counts LeakWatch::Held() {
  Counts held;
  std::error_code error;
  for (fs::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    const std::string target = TargetOf(it->path());
    if (!target.empty() && !target.starts_with("/proc/")) ++held["descriptor of " + target];
  }
  for (fs::directory_iterator it("/proc/self/task", error), end; !error && it != end;
       it.increment(error)) {
    std::ifstream file(it->path() / "comm");
    std::string name;
    if (std::getline(file, name)) ++held[kThread + name];
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
  const Counts held = Held();
  // A thread may take its name only when it first runs: names tell nothing unless there are more.
  const bool more_threads = ThreadsOf(held) > ThreadsOf(before_);
  std::vector<std::string> leaks;
  for (const auto& [what, count] : held) {
    if (what.starts_with(kThread) && !more_threads) continue;
    const auto earlier = before_.find(what);
    const int more = count - (earlier == before_.end() ? 0 : earlier->second);
    if (more == 1) leaks.push_back(what);
    if (more > 1) leaks.push_back(fmt::format("{} times: {}", more, what));
  }
  return leaks;
}

}  // namespace shardproof
