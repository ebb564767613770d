#include "verify/rank/recorded_communicator.h"

#include "src/aten/dtype.h"
#include "src/seam/decorators.h"

namespace shardproof {
namespace {

class RecordedCommunicator : public CommunicatorDecorator {
 public:
  RecordedCommunicator(std::shared_ptr<Communicator> inner, EvidenceWriter& writer)
      : CommunicatorDecorator(std::move(inner)), writer_(writer) {}

  Result<std::unique_ptr<Pending>> Broadcast(at::Tensor payload, int64_t root,
                                             std::vector<Piece> pieces) override {
    CollectiveRecord record{sequence_++,
                            "broadcast",
                            root,
                            DtypeName(payload.scalar_type()),
                            static_cast<uint64_t>(payload.numel()),
                            {}};
    for (const Piece& piece : pieces) record.tensors.push_back(piece.tensor);
    SP_TRY(writer_.Collective(record));
    return inner_->Broadcast(std::move(payload), root, std::move(pieces));
  }

  Result<std::unique_ptr<Pending>> Scatter(at::Tensor payload, std::vector<at::Tensor> payloads,
                                           int64_t root,
                                           std::vector<std::string> tensors) override {
    SP_TRY(writer_.Collective({sequence_++, "scatter", root, DtypeName(payload.scalar_type()),
                               static_cast<uint64_t>(payload.numel()), tensors}));
    return inner_->Scatter(std::move(payload), std::move(payloads), root, std::move(tensors));
  }

  Result<int64_t> Max(int64_t value, const std::string& what) override {
    SP_TRY(writer_.Collective({sequence_++, "allreduce", -1, "I64", 1, {what}}));
    return inner_->Max(value, what);
  }

  Result<std::vector<int64_t>> Sum(std::vector<int64_t> values, const std::string& what) override {
    SP_TRY(writer_.Collective({sequence_++, "allreduce", -1, "I64", values.size(), {what}}));
    return inner_->Sum(std::move(values), what);
  }

 private:
  EvidenceWriter& writer_;
  int64_t sequence_ = 0;
};

}  // namespace

std::shared_ptr<Communicator> RecordCollectives(std::shared_ptr<Communicator> inner,
                                                EvidenceWriter& writer) {
  return std::make_shared<RecordedCommunicator>(std::move(inner), writer);
}

}  // namespace shardproof
