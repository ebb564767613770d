// A rank is lost or stops answering when it has reached a stage.
#include <csignal>
#include <unistd.h>

#include <fmt/format.h>

#include "src/seam/decorators.h"
#include "verify/faults/fault.h"

namespace shardproof {
namespace {

struct Target {
  int64_t rank = 0;
  std::string stage;
};

Result<Target> TargetOf(const Case& test_case, const std::string& where) {
  const size_t at = where.find('@');
  Target target;
  SP_ASSIGN(target.rank, ParseIndex(where.substr(0, at), test_case.WorldSize(), "the rank"));
  target.stage = at == std::string::npos ? "" : where.substr(at + 1);
  for (const char* stage :
       {"built", "loaded", "sharded", "materialized", "ready", "saved", "restored"}) {
    if (target.stage == stage) return target;
  }
  return BadInput(fmt::format("'{}' is not RANK@STAGE with STAGE one of built, loaded, sharded, "
                              "materialized, ready, saved, restored",
                              where));
}

/// Sends this process a signal when it has reached the stage.
class Signaller : public ObserverDecorator {
 public:
  Signaller(std::shared_ptr<Observer> inner, std::string stage, int signal,
            std::function<void(const std::string&)> log)
      : ObserverDecorator(std::move(inner)),
        stage_(std::move(stage)),
        signal_(signal),
        log_(std::move(log)) {}
  void Reached(const std::string& stage, int64_t step, const Model& model) override {
    inner_->Reached(stage, step, model);
    if (stage != stage_) return;
    log_(fmt::format("signal {} at stage {}", signal_, stage));
    ::kill(::getpid(), signal_);
  }

 private:
  std::string stage_;
  int signal_;
  std::function<void(const std::string&)> log_;
};

Fault RankEnd(const std::string& id, const std::string& what, int signal) {
  return {
      .id = id,
      .what = what,
      .where = "RANK@STAGE: 1@sharded",
      .model = FaultModel::kMustEndTheRun,
      .check = [](const Case& test_case, const std::vector<oracle::TensorLocation>&,
                  const std::string& where) -> Status {
        SP_TRY(TargetOf(test_case, where));
        return Ok();
      },
      .arm =
          [signal](FaultSite site, const std::string& where) {
            const Target target = TargetOf(site.test_case, where).value();
            if (site.world.rank() != target.rank) return;
            site.world.observer = std::make_shared<Signaller>(site.world.observer, target.stage,
                                                              signal, site.log);
          },
  };
}

const FaultRegistration kKill{RankEnd("rank/kill", "a rank is killed", SIGKILL)};
const FaultRegistration kStop{RankEnd("rank/stop", "a rank stops and never answers again", SIGSTOP)};

}  // namespace
}  // namespace shardproof
