#include "verify/soak/workers.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "verify/process/program.h"

namespace shardproof {
namespace {

using Clock = std::chrono::steady_clock;

/// Given ahead, so that a worker never waits to be told.
constexpr size_t kGivenMax = 2;

bool SendAll(int socket, const std::string& text) {
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t now = ::send(socket, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return false;
    sent += static_cast<size_t>(now);
  }
  return true;
}

[[noreturn]] void BeWorker(int socket, size_t slot,
                           const std::function<CaseOutcome(size_t, const std::string&)>& run) {
  std::FILE* orders = ::fdopen(::dup(socket), "r");
  char* line = nullptr;
  size_t capacity = 0;
  ssize_t length = 0;
  while (orders != nullptr && (length = ::getline(&line, &capacity, orders)) > 0) {
    const CaseOutcome outcome = run(slot, std::string(line, static_cast<size_t>(length) - 1));
    const std::string text =
        OutcomeToJson(outcome).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (!SendAll(socket, text + "\n")) break;
  }
  std::fflush(nullptr);
  ::_exit(0);
}

}  // namespace

Workers::Workers(size_t count, std::function<CaseOutcome(size_t, const std::string&)> run,
                 std::chrono::milliseconds deadline)
    : run_(std::move(run)), deadline_(deadline), workers_(count) {}

Workers::~Workers() {
  for (Worker& worker : workers_) End(worker);
}

int Workers::End(Worker& worker) {
  int status = 0;
  if (worker.pid < 0) return status;
  ::kill(worker.pid, SIGKILL);
  ::waitpid(worker.pid, &status, 0);
  ::close(worker.socket);
  worker = Worker();
  return status;
}

Status Workers::Start(size_t slot) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return Internal(fmt::format("socketpair: {}", std::strerror(errno)));
  }
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(5);
    // A signal that the user sends to all is for the parent to answer.
    ::signal(SIGINT, SIG_IGN);
    ::signal(SIGTERM, SIG_IGN);
    // What a case says before it takes the worker along is said again where it is run again.
    const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nothing >= 0) ::dup2(nothing, STDERR_FILENO);
    ::close(ends[0]);
    for (const Worker& other : workers_) {
      if (other.pid >= 0) ::close(other.socket);
    }
    BeWorker(ends[1], slot, run_);
  }
  ::close(ends[1]);
  if (pid < 0) {
    ::close(ends[0]);
    return Internal(fmt::format("forking a worker: {}", std::strerror(errno)));
  }
  workers_[slot] = {.pid = pid, .socket = ends[0], .received = {}, .given = {}, .since = {}};
  return Ok();
}

bool Workers::HasRoom() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.given.size() < kGivenMax; });
}

bool Workers::IsIdle() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.given.empty(); });
}

Status Workers::Give(uint64_t index, const std::string& order) {
  const auto least = std::min_element(
      workers_.begin(), workers_.end(),
      [](const Worker& a, const Worker& b) { return a.given.size() < b.given.size(); });
  if (least->pid < 0) SP_TRY(Start(static_cast<size_t>(least - workers_.begin())));
  if (least->given.empty()) least->since = Clock::now();
  least->given.push_back({index, order});
  (void)SendAll(least->socket, order + "\n");  // who is gone is seen in Collect
  return Ok();
}

bool Workers::Receive(Worker& worker, std::vector<CaseOutcome>& outcomes) {
  char buffer[1 << 16];
  const ssize_t now = ::recv(worker.socket, buffer, sizeof buffer, MSG_DONTWAIT);
  if (now < 0) return errno == EAGAIN || errno == EINTR;
  worker.received.append(buffer, static_cast<size_t>(now));
  size_t begin = 0;
  for (size_t end; (end = worker.received.find('\n', begin)) != std::string::npos; begin = end + 1) {
    outcomes.push_back(
        OutcomeFromJson(nlohmann::json::parse(worker.received.substr(begin, end - begin))));
    outcomes.back().index = worker.given.front().index;
    worker.given.erase(worker.given.begin());
    worker.since = Clock::now();
  }
  worker.received.erase(0, begin);
  return now > 0;
}

CaseOutcome Workers::Lose(size_t slot, const std::string& why) {
  const std::vector<Given> given = workers_[slot].given;
  const int status = End(workers_[slot]);
  // What it had not begun is given anew.
  for (size_t i = 1; i < given.size(); ++i) (void)Give(given[i].index, given[i].order);
  CaseOutcome outcome = NotJudged(
      given[0].index, why.empty() ? "its process ended: " + HowItEnded(status) : why);
  outcome.lost = true;
  return outcome;
}

std::vector<CaseOutcome> Workers::Collect(std::chrono::milliseconds patience) {
  std::vector<pollfd> polled;
  for (const Worker& worker : workers_) polled.push_back({worker.socket, POLLIN, 0});
  std::vector<CaseOutcome> outcomes;
  ::poll(polled.data(), polled.size(), static_cast<int>(patience.count()));
  for (size_t slot = 0; slot < workers_.size(); ++slot) {
    Worker& worker = workers_[slot];
    if (worker.pid < 0) continue;
    const bool there = polled[slot].revents == 0 || Receive(worker, outcomes);
    if (!there && worker.given.empty()) {
      End(worker);
    } else if (!there) {
      outcomes.push_back(Lose(slot, ""));
    } else if (!worker.given.empty() && Clock::now() - worker.since > deadline_) {
      outcomes.push_back(
          Lose(slot, fmt::format("it did not end within {} s", deadline_.count() / 1000)));
    }
  }
  return outcomes;
}

}  // namespace shardproof
