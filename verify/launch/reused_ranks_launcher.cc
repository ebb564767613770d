// Ranks of the reference as processes that stay from launch to launch, and stay connected: what a
// launch costs is what its ranks do. After a launch that did not end well they are replaced.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "verify/launch/order.h"
#include "verify/launch/rank_processes.h"
#include "verify/plan/plan.h"
#include "verify/process/line_child.h"

namespace shardproof {
namespace {

/// What a rank that stands meets the others by.
struct Meeting {
  Rendezvous rendezvous;
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::Backend> backend;  // null: not connected
  int64_t launches = 0;
};

/// One launch. \returns its exit code.
int CarryOut(const PhaseRun& run, Meeting& meeting) {
  const int64_t rank = meeting.rendezvous.rank;
  const int errors =
      ::open(ErrorsPath(run, rank).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (errors >= 0) {
    ::dup2(errors, STDERR_FILENO);
    ::close(errors);
  }
  const std::shared_ptr<Clock> clock = MakeSteadyClock();
  return RunRank(run, {.rank = rank,
                       .clock = clock,
                       .connect = [&]() -> Result<Reach> {
                         // Ranks are given the same launches in the same order.
                         const auto store = c10::make_intrusive<c10d::PrefixStore>(
                             std::to_string(++meeting.launches), meeting.store);
                         return ReachOver(run.test_case.device, meeting.backend, store,
                                          meeting.rendezvous, clock);
                       },
                       .adapt = {},
                       .complain =
                           [&](const std::string& line) {
                             std::fprintf(stderr, "rank %ld: %s\n", static_cast<long>(rank),
                                          line.c_str());
                             std::fflush(stderr);
                           }});
}

/// What a rank that stands has for as long as it does.
struct Standing {
  Meeting meeting;
  std::string store_path;

  void Connect() {
    const auto store = MakeFileStore(store_path, meeting.rendezvous.world_size);
    if (!store.ok()) return;
    meeting.store = store.value();
    auto connected = ConnectGloo(meeting.store, meeting.rendezvous);
    if (connected.ok()) meeting.backend = std::move(connected).value();
  }
  std::string Answer(const std::string& order) {
    const auto run = RunFromOrder(nlohmann::json::parse(order, nullptr, false));
    return std::to_string(run.ok() && meeting.backend ? CarryOut(run.value(), meeting) : 5);
  }
};

/// The ranks of one world.
class Team : public RankProcesses {
 public:
  Team(std::string store_path, int64_t world_size, std::chrono::milliseconds timeout)
      : store_path_(std::move(store_path)), world_size_(world_size), timeout_(timeout) {}
  ~Team() override {
    members_.clear();
    std::error_code error;
    std::filesystem::remove(store_path_, error);
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  Status Start(const PhaseRun& run, int64_t rank) override {
    if (static_cast<int64_t>(members_.size()) <= rank) SP_TRY(Fork(rank));
    Member& member = members_[static_cast<size_t>(rank)];
    member.ended.reset();
    if (rank == 0) order_ = OrderFor(run).dump();
    member.process.Tell(order_);
    return Ok();
  }

  std::optional<int> Ended(int64_t rank) override {
    Member& member = members_[static_cast<size_t>(rank)];
    if (!member.process.IsThere()) return member.ended;
    std::vector<std::string> answers;
    const bool there = member.process.Hear(answers);
    if (!answers.empty()) return std::stoi(answers.front()) << 8;
    if (!there) End(rank);
    return member.ended;
  }

  pid_t Pid(int64_t rank) const override {
    return members_[static_cast<size_t>(rank)].process.pid();
  }

  void End(int64_t rank) override {
    Member& member = members_[static_cast<size_t>(rank)];
    if (member.process.IsThere()) member.ended = member.process.End();
  }

 private:
  struct Member {
    LineChild process;
    std::optional<int> ended;  ///< wait status, of one that is gone
  };

  Status Fork(int64_t rank) {
    const auto standing = std::make_shared<Standing>(Standing{
        {.rendezvous =
             {.rank = rank, .world_size = world_size_, .timeout = timeout_, .interface = "lo"}},
        store_path_});
    return members_.emplace_back().process.Fork(
        [standing] { standing->Connect(); },
        [standing](const std::string& order) { return standing->Answer(order); });
  }

  std::string store_path_;
  int64_t world_size_;
  std::chrono::milliseconds timeout_;
  std::vector<Member> members_;
  std::string order_;
};

class StandingLauncher : public Launcher {
 public:
  explicit StandingLauncher(std::string directory) : directory_(std::move(directory)) {}
  std::string CannotRun(const PhasePlan& phase) const override {
    return phase.facts().mode == RunMode::kMemory
               ? "the rank processes are reused between cases, so their "
                 "memory holds what earlier cases left"
               : "";
  }
  bool IsStanding() const override { return true; }
  Result<std::vector<RankExit>> Launch(const PhaseRun& run) override {
    // A rank that stands keeps its connections when its part has failed: the others would wait for
    // it.
    if (run.fresh || (run.phase.armed && Disrupts(run.test_case))) return forked_->Launch(run);
    SP_TRY(MakeEvidenceDirectory(run));
    const int64_t world = run.phase.WorldSize();
    std::unique_ptr<Team>& team = teams_[world];
    if (!team) {
      team = std::make_unique<Team>(fmt::format("{}/meet_{}", directory_, made_++), world,
                                    RankTimeout(run.test_case));
    }
    auto exits = LaunchRanks(run, *team);
    bool well = exits.ok();
    for (size_t rank = 0; well && rank < exits.value().size(); ++rank) {
      well = exits.value()[rank].exit == "ok";
    }
    if (!well) team.reset();
    return exits;
  }

 private:
  std::string directory_;
  std::unique_ptr<Launcher> forked_ = MakeForkLauncher();
  std::map<int64_t, std::unique_ptr<Team>> teams_;  // by number of ranks
  int64_t made_ = 0;
};

}  // namespace

std::unique_ptr<Launcher> MakeStandingLauncher(std::string directory) {
  return std::make_unique<StandingLauncher>(std::move(directory));
}

}  // namespace shardproof
