// Ranks of the reference as forks of this process, which has LibTorch loaded already: a launch
// costs milliseconds.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "verify/faults/fault.h"
#include "verify/run/network_namespace.h"
#include "verify/run/rank_processes.h"

namespace shardproof {
namespace {

[[noreturn]] void BeRank(const PhaseRun& run, int64_t rank, const std::string& store_path) {
  const auto store = MakeFileStore(store_path, run.phase.WorldSize());
  if (!store.ok()) {
    std::fprintf(stderr, "%s\n", store.error().message.c_str());
    ::_exit(5);
  }
  // What it leaves there is seen as its own (leaks.h).
  const std::string temporary = TemporaryPath(run, rank);
  ::mkdir(temporary.c_str(), 0777);
  ::setenv("TMPDIR", temporary.c_str(), 1);
  const int code = RunRank(run, store.value(),
                           {.rank = rank,
                            .world_size = run.phase.WorldSize(),
                            .timeout = RankTimeout(run.test_case),
                            .interface = "lo"});
  std::fflush(nullptr);
  ::_exit(code);
}

void Enter(const NetworkNamespace& network) {
  const Status joined = network.Join();
  if (joined.ok()) return;
  std::fprintf(stderr, "%s\n", joined.error().message.c_str());
  ::_exit(5);
}

/// Whether a fault strikes that must reach no connections but those of this launch.
bool NeedsOwnNetwork(const PhaseRun& run) {
  if (!run.phase.armed) return false;
  return std::any_of(run.test_case.faults.begin(), run.test_case.faults.end(),
                     [](const auto& asked) {
                       const auto fault = FindFault(asked.id);
                       return fault.ok() && fault.value().needs_own_network;
                     });
}

class ForkLauncher : public Launcher {
 public:
  std::string CannotRun(const PhasePlan&) const override { return ""; }

  Result<std::vector<RankExit>> Launch(const PhaseRun& run) override {
    SP_TRY(MakeEvidenceDirectory(run));
    const std::string store_path = StorePath(run);
    std::optional<NetworkNamespace> network;
    if (NeedsOwnNetwork(run)) {
      SP_ASSIGN(NetworkNamespace made, NetworkNamespace::Make());
      network.emplace(std::move(made));
    }
    ForkedProcesses processes([&](int64_t rank) {
      if (network) Enter(*network);
      BeRank(run, rank, store_path);
    });
    SP_ASSIGN(auto exits, LaunchRanks(run, processes));
    std::error_code error;
    std::filesystem::remove(store_path, error);
    for (int64_t rank = 0; rank < run.phase.WorldSize(); ++rank) {
      std::filesystem::remove_all(TemporaryPath(run, rank), error);
    }
    return exits;
  }
};

}  // namespace

std::unique_ptr<Launcher> MakeForkLauncher() { return std::make_unique<ForkLauncher>(); }

}  // namespace shardproof
