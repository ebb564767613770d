// The patterns that Explain knows. Each looks at one pair of images and returns a sentence if it is
// the pattern, else nothing.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "verify/oracle/dtype.h"

namespace shardproof::compare {

/// Two images that differ, with where they do. Indices here are into the images.
struct Images {
  std::string_view expected;
  std::string_view seen;
  const oracle::DtypeInfo* dtype = nullptr;
  std::vector<int64_t> shape;
  uint64_t first_element = 0;  ///< of the tensor: where index 0 lies
  uint64_t elements = 0;       ///< in each image
  uint64_t differing = 0;
  uint64_t first = 0;  ///< first differing element
  uint64_t last = 0;   ///< last differing element
  bool whole = false;  ///< the images are all of the tensor

  uint64_t width() const { return static_cast<uint64_t>(dtype->bytes); }
  std::string_view Expected(uint64_t i, uint64_t count = 1) const {
    return expected.substr(i * width(), count * width());
  }
  std::string_view Seen(uint64_t i, uint64_t count = 1) const {
    return seen.substr(i * width(), count * width());
  }
  bool Differs(uint64_t i) const {
    return std::memcmp(&expected[i * width()], &seen[i * width()], width()) != 0;
  }
  uint64_t Global(uint64_t i) const { return first_element + i; }
};

using Sentence = std::optional<std::string>;

Sentence AllZeros(const Images& images);
Sentence NeverWritten(const Images& images);
Sentence FlippedBit(const Images& images);
Sentence SameBitFlipped(const Images& images);
Sentence ByteSwapped(const Images& images);
Sentence Rounded(const Images& images);
Sentence OneMore(const Images& images);
Sentence CutOff(const Images& images);
Sentence Inverted(const Images& images);
Sentence Multiplied(const Images& images);
Sentence Transposed(const Images& images);
Sentence RowsPermuted(const Images& images);
Sentence ElementsSwapped(const Images& images);
Sentence Shifted(const Images& images);
Sentence Stretch(const Images& images);
std::string NoPattern(const Images& images);

}  // namespace shardproof::compare
