// Ranks of the reference as forks of this process, which has LibTorch loaded already: a launch
// costs milliseconds.
#include <unistd.h>

#include <filesystem>

#include "verify/run/rank_processes.h"

namespace shardproof {
namespace {

[[noreturn]] void BeRank(const PhaseRun& run, int64_t rank, const std::string& store_path) {
  const auto store = MakeFileStore(store_path, run.phase.WorldSize());
  if (!store.ok()) {
    std::fprintf(stderr, "%s\n", store.error().message.c_str());
    ::_exit(5);
  }
  const int code = RunRank(run, store.value(),
                           {.rank = rank,
                            .world_size = run.phase.WorldSize(),
                            .timeout = RankTimeout(run.test_case),
                            .interface = "lo"});
  std::fflush(nullptr);
  ::_exit(code);
}

class ForkLauncher : public Launcher {
 public:
  std::string CannotRun(const PhasePlan&) const override { return ""; }

  Result<std::vector<RankExit>> Launch(const PhaseRun& run) override {
    SP_TRY(MakeEvidenceDirectory(run));
    const std::string store_path = run.evidence + "/rendezvous";
    ForkedProcesses processes([&](int64_t rank) { BeRank(run, rank, store_path); });
    SP_ASSIGN(auto exits, LaunchRanks(run, processes));
    std::error_code error;
    std::filesystem::remove(store_path, error);
    return exits;
  }
};

}  // namespace

std::unique_ptr<Launcher> MakeForkLauncher() { return std::make_unique<ForkLauncher>(); }

}  // namespace shardproof
