#include "verify/faults/rank_moment.h"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>

#include "src/seam/decorators.h"
#include "verify/fault/fault_descriptions.h"
#include "verify/fault/trigger.h"

namespace shardproof {
namespace {

constexpr int64_t kCollectivesMax = int64_t{1} << 32;

struct Target {
  int64_t rank = 0;
  std::optional<Stage> stage;         ///< nothing: at a collective
  std::optional<int64_t> step;        ///< of the stage; none: whichever comes first
  std::optional<int64_t> collective;  ///< likewise
};

Result<Target> TargetOf(const Case& test_case, const std::string& where) {
  const size_t at = where.find('@');
  Target target;
  SP_ASSIGN(target.rank, ParseIndex(where.substr(0, at), test_case.WorldSize(), "the rank"));
  std::string moment = at == std::string::npos ? "" : where.substr(at + 1);
  if (moment.starts_with('#')) {
    SP_ASSIGN(target.collective, ParseIndex(moment.substr(1), kCollectivesMax, "the collective"));
    return target;
  }
  if (const size_t step = moment.find('@'); step != std::string::npos) {
    SP_ASSIGN(target.step, ParseIndex(moment.substr(step + 1), test_case.steps + 1, "the step"));
    moment.resize(step);
  }
  target.stage = FindStage(moment);
  if (target.stage) return target;
  return BadInput(
      fmt::format("'{}' is not RANK@STAGE or RANK@STAGE@STEP with STAGE one of {}, nor "
                  "RANK@#N with the number of a collective",
                  where, ListStages()));
}

/// When it happens: "when it has reached stage `ready`".
std::string InWords(const Target& target) {
  if (target.collective) {
    return fmt::format("before its {} collective", Ordinal(*target.collective + 1));
  }
  const std::string step = target.step ? fmt::format(" of step {}", *target.step) : "";
  return fmt::format("when it has reached stage `{}`{}", NameOf(*target.stage), step);
}

using Act = std::function<void(const std::string& moment)>;

class AtStage : public ObserverDecorator {
 public:
  AtStage(std::shared_ptr<Observer> inner, Target target, Act act)
      : ObserverDecorator(std::move(inner)), target_(std::move(target)), act_(std::move(act)) {}
  void Reached(Stage stage, int64_t step, const Model& model) override {
    inner_->Reached(stage, step, model);
    if (is_done_ || target_.stage != stage || target_.step.value_or(step) != step) return;
    is_done_ = true;
    act_(std::string("at stage ") + NameOf(stage));
  }

 private:
  const Target target_;
  const Act act_;
  bool is_done_ = false;
};

class AtCollective : public CommunicatorDecorator {
 public:
  AtCollective(std::shared_ptr<Communicator> inner, int64_t number, Act act)
      : CommunicatorDecorator(std::move(inner)), left_(number), act_(std::move(act)) {}
  Result<std::unique_ptr<Pending>> Broadcast(at::Tensor payload, int64_t root,
                                             std::vector<Piece> pieces) override {
    Count("a broadcast");
    return inner_->Broadcast(std::move(payload), root, std::move(pieces));
  }
  Result<std::unique_ptr<Pending>> Scatter(at::Tensor payload, std::vector<at::Tensor> payloads,
                                           int64_t root,
                                           std::vector<std::string> tensors) override {
    Count("a scatter");
    return inner_->Scatter(std::move(payload), std::move(payloads), root, std::move(tensors));
  }
  Result<int64_t> Max(int64_t value, const std::string& what) override {
    Count(what);
    return inner_->Max(value, what);
  }
  Result<std::vector<int64_t>> Sum(std::vector<int64_t> values, const std::string& what) override {
    Count(what);
    return inner_->Sum(std::move(values), what);
  }

 private:
  void Count(const std::string& what) {
    if (left_-- == 0) act_("before " + what);
  }
  int64_t left_;
  const Act act_;
};

}  // namespace

Fault RankFault(AtAMoment made) {
  Fault fault{
      .id = made.id,
      .what = made.what,
      .where =
          "RANK@STAGE, RANK@STAGE@STEP, or RANK@#N, before the N-th of its collectives from 0: "
          "1@sharded, 1@stepped@2, 0@#12",
      .example = made.example,
      .model = made.model,
      .check = [needs = made.needs](const Case& test_case,
                                    const std::vector<oracle::TensorLocation>&,
                                    const std::string& where) -> Status {
        if (needs.process && test_case.transport == "sim") {
          return BadInput("simulated ranks share one process: expected transport gloo");
        }
        if (needs.child && std::getenv("RANK") != nullptr) {
          return BadInput("RANK is set: expected ranks that are started here");
        }
        if (needs.connections && test_case.WorldSize() == 1) {
          return BadInput("one rank has no connections");
        }
        SP_TRY(TargetOf(test_case, where));
        return Ok();
      },
      .arm =
          [id = made.id, act = made.act](FaultSite site, const std::string& where) {
            const Target target = TargetOf(site.test_case, where).value();
            if (site.world.rank() != target.rank) return;
            // One call, when its moment has come; libfiu is asked as for any other fault.
            const auto point = std::make_shared<FaultPoint>(
                FaultPoint::Options{.name = id, .trigger = Trigger{}, .log = site.log});
            const Act at = [=](const std::string& moment) {
              if (point->Strikes({}, {.detail = moment})) act(site);
            };
            if (target.collective) {
              site.world.communicator =
                  std::make_shared<AtCollective>(site.world.communicator, *target.collective, at);
            } else {
              site.world.observer = std::make_shared<AtStage>(site.world.observer, target, at);
            }
          },
      .in_words = [becomes = made.becomes](const Case& test_case,
                                           const std::string& where) -> std::string {
        const auto target = TargetOf(test_case, where);
        if (!target.ok()) return "";
        return fmt::format("rank {} {} {}", target.value().rank, becomes, InWords(target.value()));
      },
      .on_any_device = true,
      .at_a_moment = true,
      .draw = made.draw,
  };
  const std::string id = made.id;
  if (!id.starts_with("rank/")) return fault;  // what no rank can do to itself by a word
  fault.in_subject = [id](const Case& test_case, const std::string& where) -> Result<SubjectFault> {
    SP_ASSIGN(const Target target, TargetOf(test_case, where));
    return SubjectFault{.rank = target.rank,
                        .moment = SubjectMoment{.act = id.substr(id.find('/') + 1),
                                                .stage = target.stage,
                                                .step = target.step,
                                                .collective = target.collective}};
  };
  return fault;
}

}  // namespace shardproof
