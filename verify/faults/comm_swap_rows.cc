// Two rows of a tensor change places between rank 0 and one receiver.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "src/shard/shard.h"
#include "verify/fault/fault.h"
#include "verify/faults/decorators.h"

namespace shardproof::faults::comm_swap_rows {
namespace {

struct Target {
  oracle::TensorLocation tensor;  ///< its name is the model's, whatever its key is
  int64_t rank = 0;
};

/// The model's name for what a key holds.
Result<std::string> NameInModel(const Case& test_case, const std::string& key) {
  SP_ASSIGN(const auto declared, oracle::DeclareModel(test_case));
  for (const TensorCase& tensor : declared.tensors) {
    for (const std::vector<StoredCase>& way : tensor.stored) {
      for (const StoredCase& part : way) {
        if (part.key != key) continue;
        if (way.size() == 1) return tensor.name;
        return BadInput(fmt::format("'{}' is a part of tensor '{}': it travels with the others",
                                    key, tensor.name));
      }
    }
  }
  return key;
}

/// What a rank owns of a tensor in the reference.
Shard ShardOn(const Case& test_case, const oracle::TensorLocation& tensor, int64_t rank) {
  Mesh mesh;
  for (const AxisCase& axis : test_case.mesh) mesh.axes.push_back({axis.name, axis.size});
  const Slot slot(TensorSpec{.name = tensor.name, .shape = tensor.shape});
  return ShardOf(tensor.shape, PlaceOnMesh(slot, mesh), mesh, mesh.CoordinatesOf(rank));
}

/// The rank given, or the last that owns anything.
Result<Target> TargetOf(const Case& test_case, const std::vector<oracle::TensorLocation>& source,
                        const std::string& where) {
  SP_ASSIGN(TensorAndRest split, SplitWhere(source, where));
  SP_ASSIGN(split.tensor.name, NameInModel(test_case, split.tensor.name));
  const std::vector<int64_t>& shape = split.tensor.shape;
  if (shape.empty() || shape[0] < 2 || split.tensor.byte_length == 0) {
    return BadInput(fmt::format("tensor '{}' has no two rows to swap", split.tensor.name));
  }
  const int64_t world = test_case.WorldSize();
  if (!split.rest.empty()) {
    SP_ASSIGN(const int64_t rank, ParseIndex(split.rest, world, "the rank"));
    return Target{split.tensor, rank};
  }
  int64_t last = world - 1;
  while (last > 0 && ShardOn(test_case, split.tensor, last).runs.empty()) --last;
  return Target{split.tensor, last};
}

/// Swaps in the first payload that holds a row of the rank's shard whole, and another that differs.
class RowSwapper : public CommunicatorDecorator {
 public:
  RowSwapper(std::shared_ptr<Communicator> inner, Target target, Shard own, FaultLog log)
      : CommunicatorDecorator(std::move(inner)),
        target_(std::move(target)),
        row_bytes_(target_.tensor.byte_length / target_.tensor.shape[0]),
        element_bytes_(row_bytes_ / RowElements(target_.tensor.shape)),
        own_(std::move(own)),
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
  static uint64_t RowElements(const std::vector<int64_t>& shape) {
    uint64_t elements = 1;
    for (size_t d = 1; d < shape.size(); ++d) elements *= shape[d];
    return elements;
  }

  /// The bytes of a row that the rank owns, as ranges within the row.
  std::vector<std::pair<uint64_t, uint64_t>> OwnedOf(int64_t row) const {
    std::vector<std::pair<uint64_t, uint64_t>> owned;
    const uint64_t begin = row * row_bytes_;
    for (const ElementRun& run : own_.runs) {
      for (uint64_t i = 0; i < run.count; ++i) {
        const uint64_t start = (run.start + i * run.stride) * element_bytes_;
        const uint64_t from = std::max(start, begin);
        const uint64_t to = std::min(start + run.length * element_bytes_, begin + row_bytes_);
        if (from < to) owned.emplace_back(from - begin, to - from);
      }
    }
    return owned;
  }

  void Swap(const Piece& piece, at::Tensor& payload) {
    if (done_ || piece.tensor != target_.tensor.name) return;
    const auto* bytes = static_cast<const std::byte*>(payload.const_data_ptr()) + piece.offset;
    const auto begin = static_cast<int64_t>((piece.global_start + row_bytes_ - 1) / row_bytes_);
    const auto end = static_cast<int64_t>((piece.global_start + piece.length) / row_bytes_);
    for (int64_t own = begin; own < end; ++own) {
      const auto owned = OwnedOf(own);
      for (int64_t step = 1; !owned.empty() && step < end - begin; ++step) {
        const int64_t other = begin + (own - begin + step) % (end - begin);
        const uint64_t a = own * row_bytes_ - piece.global_start;
        const uint64_t b = other * row_bytes_ - piece.global_start;
        const bool shows = std::any_of(owned.begin(), owned.end(), [&](const auto& range) {
          return std::memcmp(bytes + a + range.first, bytes + b + range.first, range.second) != 0;
        });
        if (!shows) continue;
        log_({.detail = fmt::format("rows {} and {} of {} swapped as rank {} received them", own,
                                    other, piece.tensor, target_.rank),
              .tensors = {piece.tensor},
              .rows = {own, other}});
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
  uint64_t element_bytes_;
  Shard own_;
  FaultLog log_;
  bool done_ = false;
};

const FaultRegistration kRegistration{{
    .id = "comm/swap-rows",
    .what = "two rows of a tensor arrive swapped at one rank",
    .where = "TENSOR, or TENSOR:RANK (else the last rank that owns any of it): lm_head.weight:1",
    .example = {"lm_head.weight:1", "two rows of lm_head.weight arrive swapped at rank 1"},
    .model = FaultModel::kMustBeSeen,
    .check = [](const Case& test_case, const std::vector<oracle::TensorLocation>& source,
                const std::string& where) -> Status {
      if (test_case.strategy != "rank0-broadcast") {
        return BadInput("it acts on what is broadcast, and strategy " + test_case.strategy +
                        " broadcasts no tensor");
      }
      SP_TRY(TargetOf(test_case, source, where));
      SP_ASSIGN(const TensorAndRest split, SplitWhere(source, where));
      return CheckLoaded(test_case, source, split.tensor.name);
    },
    .arm =
        [](FaultSite site, const std::string& where) {
          const Target target = TargetOf(site.test_case, site.source, where).value();
          site.world.communicator = std::make_shared<RowSwapper>(
              site.world.communicator, target, ShardOn(site.test_case, target.tensor, target.rank),
              site.log);
        },
    .in_words = [](const Case& test_case, const std::string& where) -> std::string {
      // Without the source a colon may be the name's own: then what follows it is no rank.
      const size_t colon = where.rfind(':');
      const auto rank = colon == std::string::npos ? Result<int64_t>(BadInput(""))
                                                   : ParseIndex(where.substr(colon + 1),
                                                                test_case.WorldSize(), "the rank");
      return fmt::format(
          "two rows of {} arrive swapped at {}", rank.ok() ? where.substr(0, colon) : where,
          rank.ok() ? fmt::format("rank {}", rank.value()) : "the last rank that owns any of it");
    },
    .tried_at = {"a.weight:0", "a.weight:1", "b.weight:0", "b.weight:1"},
}};

}  // namespace
}  // namespace shardproof::faults::comm_swap_rows
