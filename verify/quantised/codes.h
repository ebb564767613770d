// The numbers that codes stand for, before scales: a table of values, and how codes are packed.
#pragma once

#include <vector>

#include "verify/maps/view.h"

namespace shardproof::quantised {

using maps::Number;
using maps::Reader;

/// The values of codes, by the code. The bound of each is how far from it a number may be that was
/// rounded to it: half the way to its further neighbour. Beyond the ends there is a bit more room,
/// since a scale is seldom such that the largest number of its block is the last value.
using Grid = std::vector<Number>;

/// Values as they are given, NaN for a code that is none. \param beyond  the room beyond the ends;
/// less than half a step counts as that.
Grid GridOfValues(const std::vector<double>& values, double beyond = 0);

/// Of a float dtype of one byte, or F4, F6_E2M3. \param powers  whether the scales are powers of
/// two, rounded down: then numbers up to the next power of two come to the last value.
Grid GridOfFloats(const char* dtype, bool powers);

/// Whole numbers of `bits` bits. \param offset  what is taken from each code. \param width  bits of
/// the codes as they lie; 0: as many. Signed ones are in two's complement. The room beyond the ends
/// is a whole step: half of it by rounding, half since the range is not even around zero or a zero
/// point was rounded.
Grid GridOfIntegers(int bits, bool is_signed, int offset, int width = 0);

/// The same values, without bounds: those of codes that were computed and not rounded.
Grid Exact(Grid grid);

enum class Packing {
  kBytes,           ///< a code is a byte
  kLowFirst,        ///< two codes a byte, the low half first
  kHighFirst,       ///< two codes a byte, the high half first
  kBits,            ///< rows of bits, low ones first, a code may lie in two bytes or words
  kWords,           ///< codes of a row in words of 32 bits, none in two words
  kInterleaved,     ///< eight codes in a word of 32 bits, first those of even columns (AWQ)
  kBitsDownColumns  ///< as kBits, down the columns of words of 32 bits (GPTQ)
};

/// A tensor of codes as numbers. \param shape  of the codes: [..., rows, columns]. Rows of bits or
/// words may be longer. \pre `packed` holds as many; codes of the grid. The width of a code is
/// what the size of the grid says.
Reader ReadCodes(Reader packed, Packing packing, Grid grid, std::vector<int64_t> shape);

/// Bits of one code: those that number the grid's values.
int BitsOf(const Grid& grid);

}  // namespace shardproof::quantised
