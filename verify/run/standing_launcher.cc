// Ranks of the reference as processes that stay from launch to launch, and stay connected: what a launch
// costs is what its ranks do. After a launch that did not end well they are replaced.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "verify/run/order.h"
#include "verify/run/rank_processes.h"

namespace shardproof {
namespace {

bool SendLine(int socket, const std::string& line) {
  const std::string text = line + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t now = ::send(socket, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return false;
    sent += static_cast<size_t>(now);
  }
  return true;
}

/// One launch, in a rank that stands. \returns its exit code.
int CarryOut(const PhaseRun& run, int64_t rank, const c10::intrusive_ptr<c10d::Backend>& backend) {
  const int errors = ::open(ErrorsPath(run, rank).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (errors >= 0) {
    ::dup2(errors, STDERR_FILENO);
    ::close(errors);
  }
  const std::shared_ptr<Clock> clock = MakeSteadyClock();
  return RunRank(run, {.rank = rank,
                       .clock = clock,
                       .connect = [&]() -> Result<Reach> {
                         return ReachOver(run.test_case.device, backend, clock);
                       },
                       .adapt = {},
                       .complain = [&](const std::string& line) {
                         std::fprintf(stderr, "rank %ld: %s\n", static_cast<long>(rank), line.c_str());
                         std::fflush(stderr);
                       }});
}

/// Never returns: does what it is told until nobody is there to tell.
[[noreturn]] void Stand(int socket, const Rendezvous& rendezvous, const std::string& store_path) {
  const auto store = MakeFileStore(store_path, rendezvous.world_size);
  if (!store.ok()) ::_exit(5);
  const auto backend = ConnectGloo(store.value(), rendezvous);
  std::FILE* orders = ::fdopen(::dup(socket), "r");
  char* line = nullptr;
  size_t capacity = 0;
  while (orders != nullptr && ::getline(&line, &capacity, orders) > 0) {
    const auto run = RunFromOrder(nlohmann::json::parse(line, nullptr, false));
    int code = 5;
    if (run.ok() && backend.ok()) code = CarryOut(run.value(), rendezvous.rank, backend.value());
    if (!SendLine(socket, std::to_string(code))) break;
  }
  ::_exit(0);
}

/// The ranks of one world.
class Team : public RankProcesses {
 public:
  Team(std::string store_path, int64_t world_size, std::chrono::milliseconds timeout)
      : store_path_(std::move(store_path)), world_size_(world_size), timeout_(timeout) {}
  ~Team() override {
    for (size_t rank = 0; rank < members_.size(); ++rank) End(static_cast<int64_t>(rank));
    std::error_code error;
    std::filesystem::remove(store_path_, error);
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  Status Start(const PhaseRun& run, int64_t rank) override {
    if (static_cast<int64_t>(members_.size()) <= rank) SP_TRY(Fork(rank));
    Member& member = members_[static_cast<size_t>(rank)];
    member.ended.reset();
    member.answer.clear();
    if (rank == 0) order_ = OrderFor(run).dump();
    (void)SendLine(member.socket, order_);  // who is gone is seen in Ended
    return Ok();
  }

  std::optional<int> Ended(int64_t rank) override {
    Member& member = members_[static_cast<size_t>(rank)];
    if (member.pid < 0) return member.ended;
    char answer[16];
    const ssize_t length = ::recv(member.socket, answer, sizeof answer, MSG_DONTWAIT);
    if (length > 0) member.answer.append(answer, static_cast<size_t>(length));
    if (member.answer.ends_with('\n')) return std::stoi(member.answer) << 8;
    if (length != 0) return std::nullopt;
    Reap(member);
    return member.ended;
  }

  void End(int64_t rank) override {
    Member& member = members_[static_cast<size_t>(rank)];
    if (member.pid < 0) return;
    ::kill(member.pid, SIGKILL);
    Reap(member);
  }

 private:
  struct Member {
    pid_t pid = -1;
    int socket = -1;
    std::string answer;
    std::optional<int> ended;  ///< wait status, of one that is gone
  };

  static void Reap(Member& member) {
    int status = 0;
    ::waitpid(member.pid, &status, 0);
    ::close(member.socket);
    member.pid = -1;
    member.ended = status;
  }

  Status Fork(int64_t rank) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return Failed(fmt::format("socketpair: {}", std::strerror(errno)));
    }
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(5);
      ::close(ends[0]);
      for (const Member& other : members_) ::close(other.socket);
      Stand(ends[1], {.rank = rank, .world_size = world_size_, .timeout = timeout_, .interface = "lo"},
            store_path_);
    }
    ::close(ends[1]);
    if (pid < 0) {
      ::close(ends[0]);
      return Failed(fmt::format("forking rank {}: {}", rank, std::strerror(errno)));
    }
    members_.push_back({.pid = pid, .socket = ends[0], .answer = {}, .ended = {}});
    return Ok();
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
    return phase.mode == RunMode::kMemory
               ? "ranks stand from case to case here, and their memory has what others left"
               : "";
  }
  bool IsStanding() const override { return true; }
  Result<std::vector<RankExit>> Launch(const PhaseRun& run) override {
    if (run.fresh) return forked_->Launch(run);
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
