// Two rows of a tensor change places between rank 0 and one receiver.
#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "verify/faults/decorators.h"
#include "verify/faults/fault.h"

namespace shardproof {
namespace {

struct Target {
  oracle::TensorLocation tensor;
  int64_t rank = 0;
};

/// The rank given, or the last that owns a row under Shard(0).
Result<Target> TargetOf(const Case& test_case, const std::vector<oracle::TensorLocation>& source,
                        const std::string& where) {
  SP_ASSIGN(const TensorAndRest split, SplitWhere(source, where));
  const std::vector<int64_t>& shape = split.tensor.shape;
  if (shape.empty() || shape[0] < 2 || split.tensor.byte_length == 0) {
    return BadInput(fmt::format("tensor '{}' has no two rows to swap", split.tensor.name));
  }
  const int64_t world = test_case.WorldSize();
  if (!split.rest.empty()) {
    SP_ASSIGN(const int64_t rank, ParseIndex(split.rest, world, "the rank"));
    return Target{split.tensor, rank};
  }
  const int64_t chunk = (shape[0] + world - 1) / world;
  return Target{split.tensor, (shape[0] - 1) / chunk};
}

/// Swaps in the first payload that holds a row of the rank's shard whole, and another that differs.
class RowSwapper : public CommunicatorDecorator {
 public:
  RowSwapper(std::shared_ptr<Communicator> inner, Target target,
             std::function<void(const std::string&)> log)
      : CommunicatorDecorator(std::move(inner)),
        target_(std::move(target)),
        row_bytes_(target_.tensor.byte_length / target_.tensor.shape[0]),
        first_(ChunkOf(target_.tensor.shape[0], world_size(), target_.rank)),
        log_(std::move(log)) {}

  Result<std::unique_ptr<Pending>> Broadcast(at::Tensor payload, int64_t root,
                                             std::vector<Piece> pieces) override {
    SP_ASSIGN(auto pending, inner_->Broadcast(payload, root, pieces));
    if (done_ || rank() != target_.rank) return pending;
    return std::unique_ptr<Pending>(
        std::make_unique<PendingChanged>(std::move(pending), [this, pieces](at::Tensor arrived) {
          for (const Piece& piece : pieces) Swap(piece, arrived);
          return arrived;
        }));
  }

 private:
  void Swap(const Piece& piece, at::Tensor& payload) {
    if (done_ || piece.tensor != target_.tensor.name) return;
    const auto* bytes = static_cast<const std::byte*>(payload.const_data_ptr()) + piece.offset;
    const auto begin = static_cast<int64_t>((piece.global_start + row_bytes_ - 1) / row_bytes_);
    const auto end = static_cast<int64_t>((piece.global_start + piece.length) / row_bytes_);
    for (int64_t own = std::max(begin, first_.begin); own < std::min(end, first_.end); ++own) {
      for (int64_t step = 1; step < end - begin; ++step) {
        const int64_t other = begin + (own - begin + step) % (end - begin);
        const uint64_t a = own * row_bytes_ - piece.global_start;
        const uint64_t b = other * row_bytes_ - piece.global_start;
        if (std::memcmp(bytes + a, bytes + b, row_bytes_) == 0) continue;
        log_(fmt::format("rows {} and {} of {} swapped as rank {} received them", own, other,
                         piece.tensor, target_.rank));
        payload = payload.clone();
        auto* changed = static_cast<std::byte*>(payload.mutable_data_ptr()) + piece.offset;
        std::swap_ranges(changed + a, changed + a + row_bytes_, changed + b);
        done_ = true;
        return;
      }
    }
  }

  Target target_;
  uint64_t row_bytes_;
  IndexRange first_;
  std::function<void(const std::string&)> log_;
  bool done_ = false;
};

const FaultRegistration kRegistration{{
    .id = "comm/swap-rows",
    .what = "two rows of a tensor arrive swapped at one rank",
    .where = "TENSOR, or TENSOR:RANK (else the last rank that owns a row): lm_head.weight:1",
    .model = FaultModel::kMustBeSeen,
    .check = [](const Case& test_case, const std::vector<oracle::TensorLocation>& source,
                const std::string& where) -> Status {
      SP_ASSIGN(const Target target, TargetOf(test_case, source, where));
      return CheckLoaded(test_case, source, target.tensor.name);
    },
    .arm =
        [](FaultSite site, const std::string& where) {
          site.world.communicator = std::make_shared<RowSwapper>(
              site.world.communicator, TargetOf(site.test_case, site.source, where).value(),
              site.log);
        },
}};

}  // namespace
}  // namespace shardproof
