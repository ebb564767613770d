// What the pickle of one piece of a DCP tensor says of it.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/aten/dtype.h"
#include "src/core/result.h"
#include "src/pickle/pickle.h"

namespace shardproof {

/// The sizes or offsets that a pickle holds: a tuple of integers of at least 0.
/// \param where  says it, if it comes to that: there are many pieces, and few are wrong.
template <typename Where>
Result<std::vector<int64_t>> DcpSizes(const pickle::PickleValue* value, Where where) {
  std::vector<int64_t> sizes;
  if (value == nullptr || !value->Is(pickle::PickleValue::Kind::kTuple)) {
    return BadInput(fmt::format("{}: expected sizes, found {}", where(),
                                value == nullptr ? "none" : pickle::Describe(*value)));
  }
  for (const pickle::PickleValue* item : value->items) {
    if (!item->Is(pickle::PickleValue::Kind::kInteger) || item->is_big || item->integer < 0) {
      return BadInput(fmt::format("{}: expected integers of at least 0, found {}", where(),
                                  pickle::Describe(*item)));
    }
    sizes.push_back(item->integer);
  }
  return sizes;
}

/// Reads the pickles of pieces, and remembers them: layers are alike.
class DcpPieces {
 public:
  /// \param where  the metadata, for messages
  explicit DcpPieces(std::string where) : where_(std::move(where)) {}

  /// Where a piece begins in its storage, bytes.
  /// \param file    that it is in, for messages
  /// \param pickle  of a tensor that must have this dtype and these sizes
  /// \error kBadInput if it is of another, or of no tensor; kUnsupported if it does not lie in
  ///   row-major order.
  Result<uint64_t> BeginOf(const std::string& file, const std::string& name,
                           std::string_view pickle, at::ScalarType dtype,
                           const std::vector<int64_t>& sizes);

  /// What the metadata says of a piece, for messages.
  std::string PieceOf(const std::string& name) const;

 private:
  /// What the pickle of a piece was found to be.
  struct KnownPiece {
    at::ScalarType dtype = at::kFloat;
    std::vector<int64_t> sizes;
    uint64_t begin = 0;  ///< in its storage, bytes
  };

  static Result<uint64_t> Read(const std::string& file, const std::string& name,
                               std::string_view pickle, at::ScalarType dtype,
                               const std::vector<int64_t>& sizes);

  const std::string where_;
  std::map<std::string, KnownPiece, std::less<>> known_;  ///< by their pickles
};

}  // namespace shardproof
