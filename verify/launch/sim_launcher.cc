// Ranks of the reference as threads of one process over the simulated transport.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "src/comm/sim.h"
#include "src/comm/staging.h"
#include "src/seam/decorators.h"
#include "verify/decorators/isolated_device.h"
#include "verify/launch/rank_processes.h"

namespace shardproof {
namespace {

/// Before a rank touches the file system, others may have their turn: who is first is what a
/// missing barrier leaves open.
class YieldingFiles : public FilesDecorator {
 public:
  YieldingFiles(std::shared_ptr<FileSystem> inner, SimWorld& world)
      : FilesDecorator(std::move(inner)), world_(world) {}

 private:
  FileSystem& Inner() override {
    world_.Yield();
    return *inner_;
  }

  SimWorld& world_;
};

/// As Connect() has it for processes.
Reach ReachIn(SimWorld& world, int64_t rank, const std::string& device) {
  if (device == "cpu") return {MakeHostDevice(), world.CommunicatorOf(rank)};
  Reach reach{MakeApartDevice(), nullptr};
  reach.communicator = StageThrough(world.CommunicatorOf(rank), *reach.device, false);
  return reach;
}

/// Another stream of choices for every phase: they take the same steps.
uint64_t SeedOf(const PhaseRun& run) {
  uint64_t seed = run.test_case.seed;
  for (const char c : std::string_view(run.phase.name()))
    seed = seed * 0x100000001b3 ^ static_cast<unsigned char>(c);
  return seed;
}

/// Runs all ranks of `run` in this process. \param codes  one a rank, their exit codes.
void RunRanks(const PhaseRun& run, int* codes) {
  SimWorld world(run.phase.WorldSize(), SeedOf(run));
  world.Run([&](int64_t rank) {
    const RankSeat seat{
        .rank = rank,
        .clock = world.MakeClock(),
        .connect = [&]() -> Result<Reach> { return ReachIn(world, rank, run.test_case.device); },
        .adapt =
            [&](World& seen) { seen.files = std::make_shared<YieldingFiles>(seen.files, world); },
        .complain =
            [&](const std::string& line) {
              std::FILE* file = std::fopen(ErrorsPath(run, rank).c_str(), "a");
              if (file == nullptr) return;
              fmt::print(file, "rank {}: {}\n", rank, line);
              std::fclose(file);
            },
        .lose = [&world, rank] { world.Lose(rank); },
        .shares_process = true};
    codes[rank] = RunRank(run, seat);
  });
}

int WaitStatus(int exit_code) { return exit_code == kRankDied ? SIGKILL : exit_code << 8; }

/// Ranks of this very process: they have all ended when the last was started.
class RanksHere : public RankProcesses {
 public:
  Status Start(const PhaseRun& run, int64_t rank) override {
    if (rank + 1 < run.phase.WorldSize()) return Ok();
    codes_.assign(static_cast<size_t>(run.phase.WorldSize()), 5);
    RunRanks(run, codes_.data());
    return Ok();
  }
  std::optional<int> Ended(int64_t rank) override { return WaitStatus(codes_[rank]); }
  void End(int64_t) override {}

 private:
  std::vector<int> codes_;
};

/// Ranks of one child, which takes them all along when it ends badly.
class RanksInChild : public RankProcesses {
 public:
  ~RanksInChild() override {
    if (codes_ != nullptr) ::munmap(codes_, bytes_);
  }
  Status Start(const PhaseRun& run, int64_t rank) override {
    if (rank > 0) return Ok();
    bytes_ = static_cast<size_t>(run.phase.WorldSize()) * sizeof(int);
    void* shared =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return Failed("no memory for the ends of ranks");
    codes_ = static_cast<int*>(shared);
    for (int64_t other = 0; other < run.phase.WorldSize(); ++other) codes_[other] = 5;
    child_ = std::make_unique<ForkedProcesses>([this, &run](int64_t) {
      RunRanks(run, codes_);
      std::fflush(nullptr);
      ::_exit(0);
    });
    return child_->Start(run, 0);
  }
  std::optional<int> Ended(int64_t rank) override {
    if (!status_) status_ = child_->Ended(0);
    if (!status_) return std::nullopt;
    return *status_ == 0 ? WaitStatus(codes_[rank]) : *status_;
  }
  void End(int64_t) override {
    if (!status_) child_->End(0);
    status_ = 0;
  }

 private:
  std::unique_ptr<ForkedProcesses> child_;
  std::optional<int> status_;
  int* codes_ = nullptr;
  size_t bytes_ = 0;
};

class SimLauncher : public Launcher {
 public:
  explicit SimLauncher(bool here) : here_(here) {}
  std::string CannotRun(const PhasePlan& phase) const override {
    return phase.facts().mode == RunMode::kMemory
               ? "the ranks are threads of one process, so their memory cannot be told apart"
               : "";
  }
  Result<std::vector<RankExit>> Launch(const PhaseRun& run) override {
    SP_TRY(MakeEvidenceDirectory(run));
    if (here_) {
      RanksHere ranks;
      return LaunchRanks(run, ranks);
    }
    RanksInChild ranks;
    return LaunchRanks(run, ranks);
  }

 private:
  bool here_;
};

}  // namespace

std::unique_ptr<Launcher> MakeSimLauncher(bool in_this_process) {
  return std::make_unique<SimLauncher>(in_this_process);
}

}  // namespace shardproof
