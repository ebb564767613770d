#include "verify/launch/warm_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

namespace shardproof {
namespace {

using Steady = std::chrono::steady_clock;
using nlohmann::json;
constexpr auto kStart = std::chrono::minutes(1);
constexpr auto kEnd = std::chrono::seconds(10);

}  // namespace

Result<std::unique_ptr<WarmPython>> WarmPython::Start(const PythonOptions& options,
                                                      const std::string& scratch) {
  std::array<int, 2> orders{};
  std::array<int, 2> news{};
  if (::pipe2(orders.data(), O_CLOEXEC) != 0 || ::pipe2(news.data(), O_CLOEXEC) != 0) {
    return Failed(fmt::format("pipe: {}", std::strerror(errno)));
  }
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return Failed(fmt::format("forking: {}", std::strerror(errno)));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(5);
    ::dup2(orders[0], STDIN_FILENO);
    ::dup2(news[1], STDOUT_FILENO);
    const std::string errors = scratch + ".stderr";  // what imports warn of is nobody's finding
    const int fd = ::open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd >= 0) ::dup2(fd, STDERR_FILENO);
    SetSubjectEnvironment(options, scratch);
    Exec(PythonWords(options.python, "from shardproof._rank._warm import serve; serve()", {}));
  }
  ::close(orders[0]);
  ::close(news[1]);
  std::unique_ptr<WarmPython> made(new WarmPython);
  made->pid_ = pid;
  made->orders_ = orders[1];
  made->news_ = news[0];
  const auto deadline = Steady::now() + kStart;
  while (!made->ready_ && !made->gone_ && made->refusal_.empty() && Steady::now() < deadline) {
    made->Read(std::chrono::milliseconds(100));
  }
  if (made->ready_) return made;
  return Failed(made->refusal_.empty() ? "the reused Python process did not start"
                                       : made->refusal_);
}

WarmPython::~WarmPython() {
  if (orders_ >= 0) ::close(orders_);  // its ranks end with it
  if (news_ >= 0) ::close(news_);
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

bool WarmPython::Write(const std::string& line) {
  // A process that is gone is told by its news; the signal must not end this one.
  const auto previous = ::signal(SIGPIPE, SIG_IGN);
  const ssize_t length = ::write(orders_, line.data(), line.size());
  ::signal(SIGPIPE, previous);
  return length == static_cast<ssize_t>(line.size());
}

void WarmPython::Read(std::chrono::milliseconds patience) {
  pollfd waits{news_, POLLIN, 0};
  if (::poll(&waits, 1, static_cast<int>(patience.count())) <= 0) return;
  std::array<char, 4096> chunk;
  const ssize_t length = ::read(news_, chunk.data(), chunk.size());
  if (length <= 0) {
    gone_ = true;
    return;
  }
  unread_.append(chunk.data(), static_cast<size_t>(length));
  for (size_t end = unread_.find('\n'); end != std::string::npos; end = unread_.find('\n')) {
    const json news = json::parse(unread_.substr(0, end), nullptr, false);
    unread_.erase(0, end + 1);
    if (!news.is_object()) continue;
    if (news.contains("ready")) ready_ = true;
    if (news.contains("refusal")) refusal_ = news.at("refusal");
    if (news.contains("pid")) pids_[news.at("rank")] = news.at("pid");
    if (news.contains("status")) ended_[news.at("rank")] = news.at("status");
  }
}

Status WarmPython::Begin(const PhaseRun& run, const std::string& order, int64_t rank) {
  ended_.erase(rank);
  pids_.erase(rank);
  const json line = {{"begin", rank},
                     {"order", order},
                     {"stdout", fmt::format("{}/rank_{}.stdout", run.evidence, rank)},
                     {"stderr", ErrorsPath(run, rank)}};
  return Write(line.dump() + "\n") ? Ok() : Failed("the reused Python process has ended");
}

std::optional<int> WarmPython::Ended(int64_t rank) {
  Read(std::chrono::milliseconds(0));
  if (const auto found = ended_.find(rank); found != ended_.end()) return found->second;
  return gone_ ? std::optional<int>(SIGKILL) : std::nullopt;
}

pid_t WarmPython::Pid(int64_t rank) const {
  const auto known = pids_.find(rank);
  return known == pids_.end() ? -1 : known->second;
}

void WarmPython::End(int64_t rank) {
  if (!Write(json({{"end", rank}}).dump() + "\n")) return;
  const auto deadline = Steady::now() + kEnd;
  while (!ended_.contains(rank) && !gone_ && Steady::now() < deadline) {
    Read(std::chrono::milliseconds(20));
  }
}

}  // namespace shardproof
