// A line of a map as words.
#pragma once

#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/maps/name_pattern.h"

namespace shardproof::maps {

struct Token {
  enum class Kind { kName, kNumber, kSign, kEnd };
  Kind kind = Kind::kEnd;
  std::string text;                             ///< as it was written, without quotes
  std::vector<NamePattern::Piece> pieces = {};  ///< of a name
  double number = 0;
  bool quoted = false;
  bool spaced = false;  ///< a blank stands before it
};

/// A name takes all of letters, digits, _ . - / @ $ and captures that stand together, so that
/// arithmetic needs blanks around its signs. A remark begins with #.
/// \error kBadInput, without a place: a quote or brace that does not end, an odd character.
Result<std::vector<Token>> Tokens(const std::string& line);

}  // namespace shardproof::maps
