// A bit changes on the wire.
#include <fmt/format.h>

#include "src/comm/describe.h"
#include "verify/case/names.h"
#include "verify/fault/fault.h"
#include "verify/fault/fault_descriptions.h"
#include "verify/faults/decorators.h"

namespace shardproof::faults::comm_flip {
namespace {

class FlippedWire : public CommunicatorDecorator {
 public:
  FlippedWire(std::shared_ptr<Communicator> inner, std::shared_ptr<FaultPoint> point)
      : CommunicatorDecorator(std::move(inner)), point_(std::move(point)) {}

  Result<std::unique_ptr<Pending>> Broadcast(at::Tensor payload, int64_t root,
                                             std::vector<Piece> pieces) override {
    const std::string what = BroadcastText(root, pieces);
    SP_ASSIGN(auto pending, inner_->Broadcast(std::move(payload), root, std::move(pieces)));
    return rank() == root ? std::move(pending) : Watched(std::move(pending), what);
  }
  Result<std::unique_ptr<Pending>> Scatter(at::Tensor payload, std::vector<at::Tensor> payloads,
                                           int64_t root,
                                           std::vector<std::string> tensors) override {
    const std::string what = ScatterText(root, tensors);
    SP_ASSIGN(auto pending,
              inner_->Scatter(std::move(payload), std::move(payloads), root, std::move(tensors)));
    return Watched(std::move(pending), what);
  }

 private:
  std::unique_ptr<Pending> Watched(std::unique_ptr<Pending> pending, const std::string& what) {
    return std::make_unique<PendingChanged>(std::move(pending), [point = point_,
                                                                 what](at::Tensor arrived) {
      const uint64_t bytes = arrived.nbytes();
      if (bytes == 0) return arrived;
      const uint64_t at = bytes / 2;
      if (!point->Strikes({what, bytes}, {.detail = fmt::format(
                                              "bit 0 of byte {} of what arrived by {}", at, what),
                                          .call = what,
                                          .byte = at})) {
        return arrived;
      }
      // In place: what arrives may be a shard itself.
      static_cast<std::byte*>(arrived.mutable_data_ptr())[at] ^= std::byte{1};
      return arrived;
    });
  }

  const std::shared_ptr<FaultPoint> point_;
};

const FaultRegistration kRegistration{{
    .id = "comm/flip",
    .what = "the lowest bit of a byte in the middle of a message to a rank is flipped on "
            "the wire",
    .where = kTriggerHelp,
    .example = {"0:1",
                "on rank 1, the first broadcast or scatter that brings it something arrives "
                "with the lowest bit of its middle byte flipped"},
    .model = FaultModel::kMustBeSeen,
    .check = [](const Case& test_case, const std::vector<oracle::TensorLocation>& source,
                const std::string& where) -> Status {
      if (test_case.strategy == "each-reads-own" || test_case.strategy == kPlainStrategy) {
        return BadInput("it acts on tensors that travel, and with strategy " + test_case.strategy +
                        " none does");
      }
      return CheckTrigger(test_case, source, where);
    },
    .arm =
        [](FaultSite site, const std::string& where) {
          site.world.communicator = std::make_shared<FlippedWire>(site.world.communicator,
                                                                  site.Point("comm/flip", where));
        },
    .in_words = CallInWords("broadcast or scatter that brings it something",
                            "arrives with the lowest bit of its middle byte flipped"),
}};

}  // namespace
}  // namespace shardproof::faults::comm_flip
