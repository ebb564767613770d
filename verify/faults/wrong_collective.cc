#include "verify/faults/wrong_collective.h"

#include "src/comm/describe.h"
#include "src/seam/decorators.h"
#include "verify/fault/fault_descriptions.h"

namespace shardproof {
namespace {

/// What there is of a collective that was not made.
class Never : public Pending {
 public:
  explicit Never(at::Tensor payload) : payload_(std::move(payload)) {}
  Result<at::Tensor> Wait() override { return payload_; }

 private:
  at::Tensor payload_;
};

/// Where the point strikes, `instead` is made in place of the collective, if there is one.
class Otherwise : public CommunicatorDecorator {
 public:
  Otherwise(std::shared_ptr<Communicator> inner, std::shared_ptr<FaultPoint> point,
            std::string verb, Instead instead)
      : CommunicatorDecorator(std::move(inner)),
        point_(std::move(point)),
        verb_(std::move(verb)),
        instead_(std::move(instead)) {}

  Result<std::unique_ptr<Pending>> Broadcast(at::Tensor payload, int64_t root,
                                             std::vector<Piece> pieces) override {
    const std::string what = BroadcastText(root, pieces);
    if (!Strikes(what, payload.nbytes())) {
      return inner_->Broadcast(std::move(payload), root, std::move(pieces));
    }
    SP_TRY(instead_(*inner_));
    return std::unique_ptr<Pending>(std::make_unique<Never>(std::move(payload)));
  }
  Result<std::unique_ptr<Pending>> Scatter(at::Tensor payload, std::vector<at::Tensor> payloads,
                                           int64_t root,
                                           std::vector<std::string> tensors) override {
    const std::string what = ScatterText(root, tensors);
    if (!Strikes(what, payload.nbytes())) {
      return inner_->Scatter(std::move(payload), std::move(payloads), root, std::move(tensors));
    }
    SP_TRY(instead_(*inner_));
    return std::unique_ptr<Pending>(std::make_unique<Never>(std::move(payload)));
  }
  Result<int64_t> Max(int64_t value, const std::string& what) override {
    if (!Strikes(what, sizeof value)) return inner_->Max(value, what);
    SP_TRY(instead_(*inner_));
    return value;
  }
  Result<std::vector<int64_t>> Sum(std::vector<int64_t> values, const std::string& what) override {
    if (!Strikes(what, values.size() * sizeof(int64_t))) {
      return inner_->Sum(std::move(values), what);
    }
    SP_TRY(instead_(*inner_));
    return values;
  }

 private:
  bool Strikes(const std::string& what, uint64_t bytes) {
    return point_->Strikes({what, bytes}, {.detail = verb_ + " " + what, .call = what});
  }

  const std::shared_ptr<FaultPoint> point_;
  const std::string verb_;
  const Instead instead_;
};

}  // namespace

Fault OtherwiseFault(InsteadOfCollective fault) {
  return {.id = fault.id,
          .what = fault.what,
          .where = kTriggerHelp,
          .example = fault.example,
          .model = FaultModel::kMustEndTheRun,
          .check = [](const Case& test_case, const std::vector<oracle::TensorLocation>& source,
                      const std::string& where) -> Status {
            if (test_case.WorldSize() == 1) return BadInput("one rank makes no collectives");
            if (test_case.transport != "sim") {
              return BadInput(
                  "collectives of different sizes end a process from within Gloo: expected "
                  "transport sim");
            }
            return CheckTrigger(test_case, source, where);
          },
          .arm =
              [=](FaultSite site, const std::string& where) {
                site.world.communicator = std::make_shared<Otherwise>(site.world.communicator,
                                                                      site.Point(fault.id, where),
                                                                      fault.verb, fault.instead);
              },
          .in_words = CallInWords("collective", fault.becomes),
          .draw = fault.draw};
}

}  // namespace shardproof
