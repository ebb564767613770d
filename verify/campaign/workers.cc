#include "verify/campaign/workers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "verify/case/json_fields.h"
#include "verify/process/program.h"

namespace shardproof {
namespace {

using Monotonic = std::chrono::steady_clock;

/// Given ahead, so that a worker never waits to be told.
constexpr size_t kGivenMax = 2;

/// In a worker, before anything is run.
void BecomeWorker() {
  // A signal that the user sends to all is for the parent to answer.
  ::signal(SIGINT, SIG_IGN);
  ::signal(SIGTERM, SIG_IGN);
  // What a case says before it takes the worker along is said again where it is run again.
  const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nothing >= 0) ::dup2(nothing, STDERR_FILENO);
}

}  // namespace

Workers::Workers(size_t count, std::function<CaseOutcome(size_t, const std::string&)> run,
                 std::chrono::milliseconds deadline)
    : run_(std::move(run)), deadline_(deadline), workers_(count) {}

Status Workers::Start(size_t slot) {
  return workers_[slot].process.Fork(BecomeWorker, [this, slot](const std::string& order) {
    return DumpJson(OutcomeToJson(run_(slot, order)));
  });
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
  if (!least->process.IsThere()) SP_TRY(Start(static_cast<size_t>(least - workers_.begin())));
  if (least->given.empty()) least->since = Monotonic::now();
  least->given.push_back({index, order});
  least->process.Tell(order);
  return Ok();
}

bool Workers::Receive(Worker& worker, std::vector<CaseOutcome>& outcomes) {
  std::vector<std::string> lines;
  const bool there = worker.process.Hear(lines);
  for (const std::string& line : lines) {
    outcomes.push_back(OutcomeFromJson(nlohmann::json::parse(line)));
    outcomes.back().index = worker.given.front().index;
    worker.given.erase(worker.given.begin());
    worker.since = Monotonic::now();
  }
  return there;
}

CaseOutcome Workers::Lose(size_t slot, Loss loss) {
  const std::vector<Given> given = std::move(workers_[slot].given);
  const int status = workers_[slot].process.End();
  workers_[slot] = Worker();
  // What it had not begun is given anew.
  for (size_t i = 1; i < given.size(); ++i) (void)Give(given[i].index, given[i].order);
  const std::string exit = loss == Loss::kHang ? "hang" : HowItEnded(status);
  CaseOutcome outcome = NotJudged(
      given[0].index, loss == Loss::kHang
                          ? fmt::format("it did not end within {} s", deadline_.count() / 1000)
                          : "its process ended: " + exit);
  outcome.exit = exit;
  return outcome;
}

std::vector<CaseOutcome> Workers::Collect(std::chrono::milliseconds patience) {
  std::vector<pollfd> polled;
  for (const Worker& worker : workers_) polled.push_back({worker.process.socket(), POLLIN, 0});
  std::vector<CaseOutcome> outcomes;
  ::poll(polled.data(), polled.size(), static_cast<int>(patience.count()));
  for (size_t slot = 0; slot < workers_.size(); ++slot) {
    Worker& worker = workers_[slot];
    if (!worker.process.IsThere()) continue;
    const bool there = polled[slot].revents == 0 || Receive(worker, outcomes);
    if (!there && worker.given.empty()) {
      worker.process.End();
    } else if (!there) {
      outcomes.push_back(Lose(slot, Loss::kEnded));
    } else if (!worker.given.empty() && Monotonic::now() - worker.since > deadline_) {
      outcomes.push_back(Lose(slot, Loss::kHang));
    }
  }
  return outcomes;
}

}  // namespace shardproof
