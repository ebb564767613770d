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
/// Every byte of the values that ranks find in the checkpoint where only rank 0 is to read: a value
/// of every dtype, and in a type of more than one byte none that a model is given.
inline constexpr unsigned char kOthersByte = 1;

/// A likely cause; empty if there is none.
struct Explanation {
  /// In a word: "poison", "zeros", "own-file",
  /// "flipped-bit", "byte-order", "rounded-F16", "rounded-BF16",
  /// "rounded-F32", "truncated-BF16", "transposed", "swapped", "shifted", "moved" or "nan".
  std::string cause = {};
  std::string text = {};  ///< in a few words, with sizes and places

  bool empty() const { return cause.empty(); }
};

/// Memory that nobody has written since it was poisoned, and zeros.
Explanation NeverWritten();
Explanation Zeros();
/// What a rank that is not to read has read all the same.
Explanation OwnFile();

/// The likely cause of the difference, or empty if none accounts for all of it: the above, one
/// flipped bit, swapped bytes, rounded through another dtype, transposed, rows swapped, moved or
/// repeated, elements shifted, NaN.
/// \param expected, seen  the same stretch of a row-major image; whole elements; equal in size.
/// \param shape        of the whole tensor
/// \param start_index  global element index of the first element given
Explanation Explain(std::string_view expected, std::string_view seen, std::string_view dtype,
                    const std::vector<int64_t>& shape, uint64_t start_index);

}  // namespace shardproof
