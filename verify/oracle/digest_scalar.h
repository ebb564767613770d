// The plain digest: SPECIFICATION.md written down word by word, with no table or kernel shared with
// src/digest/*.c*. Slow where slow is simple.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/digest/digest.hpp"
#include "verify/evidence/evidence.h"
#include "verify/oracle/dtype.h"

namespace shardproof::oracle {

/// The SplitMix64 finaliser of SPECIFICATION.md.
uint64_t Mix(uint64_t x);

/// Takes a tensor's global byte image front to back, in pieces of any size, and sums it up.
class ScalarDigest {
 public:
  /// \param byte_length  of the whole tensor, which fixes the block grid.
  /// \param dtype        for the NaN and Inf count; must outlive this.
  ScalarDigest(uint64_t byte_length, const DtypeInfo& dtype);

  /// The next `length` bytes of the image.
  void Add(const char* data, uint64_t length);

  /// Digest, coverage, counts and blocks of what was added; the other fields of `out` stay. Call
  /// once, at the end.
  void Finish(FileTensor& out);

 private:
  void AddWords(const char* data, uint64_t length);
  void AddBlock(uint64_t block, const uint64_t (&sums)[2], const uint64_t (&coverage)[2]);
  void CountNonFinite(const char* data, uint64_t length);
  template <typename Word>
  void CountElements(const char* data, uint64_t length);

  const DtypeInfo& dtype_;
  uint64_t position_ = 0;  ///< bytes summed so far; a multiple of 8 until the end
  std::string pending_;    ///< fewer than 8 bytes that wait for the rest of their word
  Digest digest_;
  Digest coverage_;
  BlockDigests blocks_;
  uint64_t nan_count_ = 0;
  uint64_t inf_count_ = 0;
  std::optional<uint64_t> first_nonfinite_;
};

}  // namespace shardproof::oracle
