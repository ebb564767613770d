// The likely cause of a difference, from the bytes alone. Pure: same bytes, same sentence.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardproof::compare {

/// The most bytes that are worth handing to Explain, on each side.
constexpr uint64_t kExplainBytesMax = 4u << 20;

/// Two images of the same tensor, or of the same stretch of it.
struct ExplainInput {
  std::string_view expected;
  std::string_view seen;       ///< as long as `expected`
  std::string dtype;           ///< safetensors' name
  std::vector<int64_t> shape;  ///< of the whole tensor
  uint64_t first_element = 0;  ///< row-major index at which the two begin
};

/// One sentence without a full stop: "rows 2 and 3 are swapped", "bit 30 of element 5 is flipped",
/// else "no simple pattern: ...". Where it looks as if the expected one went wrong, it says so.
/// Where only a stretch of the tensor is given, it says which one was looked at. Empty if the two
/// are equal or the input makes no sense (unknown dtype, lengths that differ or are no whole number
/// of elements). \units elements are indices into the whole tensor; at most kExplainBytesMax bytes
/// are looked at.
std::string Explain(const ExplainInput& input);

}  // namespace shardproof::compare
