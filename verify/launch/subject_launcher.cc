// All ranks of a Python subject, on this machine.
#include <fstream>
#include <nlohmann/json.hpp>

#include "verify/launch/rank_processes.h"
#include "verify/launch/subject_ranks.h"

namespace shardproof {
namespace {

class SubjectLauncher : public Launcher {
 public:
  explicit SubjectLauncher(PythonOptions options) : ranks_(std::move(options)) {}

  std::string CannotRun(const PhasePlan&) const override { return ""; }
  bool IsStanding() const override { return ranks_.IsStanding(); }

  Result<std::vector<RankExit>> Launch(const PhaseRun& run) override {
    SP_TRY(MakeEvidenceDirectory(run));
    std::ofstream(OrderPath(run)) << OrderForSubject(run).dump(1) << "\n";
    return ranks_.Run(run, EveryRank(run));
  }

 private:
  SubjectRanks ranks_;
};

}  // namespace

std::unique_ptr<Launcher> MakeSubjectLauncher(PythonOptions options) {
  return std::make_unique<SubjectLauncher>(std::move(options));
}

}  // namespace shardproof
