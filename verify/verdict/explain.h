// From two versions of the same bytes to the likely cause of their difference. Pure: no evidence,
// no ranks. A cause is named only if it accounts for every differing element.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardproof {

/// The byte with which a values run fills every fresh allocation.
inline constexpr unsigned char kPoisonByte = 0xff;

/// "never written (poison)" or "zeros" if that is what every differing element is; else empty.
/// \param expected, seen  the same stretch of a row-major image; whole elements; equal in size.
std::string ExplainFill(std::string_view expected, std::string_view seen, std::string_view dtype);

/// The likely cause of the difference in a few words, or empty if none accounts for all of it: the
/// above, one flipped bit, swapped bytes, rounded through another dtype, transposed, rows swapped,
/// moved or repeated, elements shifted, NaN.
/// \param shape        of the whole tensor
/// \param start_index  global element index of the first element given
std::string Explain(std::string_view expected, std::string_view seen, std::string_view dtype,
                    const std::vector<int64_t>& shape, uint64_t start_index);

}  // namespace shardproof
