// The digest in plain C++, for any processor; the yardstick of the vector kernels.
#include "src/digest/digest_internal.h"

namespace shardproof::digest_internal {
namespace {

#define DIGEST_TARGET
constexpr uint32_t kGroupBlocks = 1;

/// Nonzero if an element of the word may be NaN or Inf. `odd_mask` is all ones for the upper half
/// of a double, and zero for its lower half.
template <sp_float_format kFormat>
uint32_t Suspicion(uint32_t word, uint32_t odd_mask) {
  using E = Element<kFormat>;
  if constexpr (kFormat == SP_NO_FLOAT) {
    return 0;
  } else if constexpr (sizeof(typename E::Bits) == 8) {
    return ((word << 1) >= static_cast<uint32_t>(E::kInfTwice >> 32)) & odd_mask;
  } else if constexpr (sizeof(typename E::Bits) == 4) {
    return (word << 1) >= E::kInfTwice;
  } else {
    // An element is suspect when the bits of infinity are all set: adding the lowest of them to
    // those bits then carries into the place of the sign, which the mask left free.
    constexpr uint32_t kRepeat = sizeof(typename E::Bits) == 2 ? 0x00010001 : 0x01010101;
    constexpr uint32_t kInf = E::kInfTwice / 2;
    constexpr uint32_t kLowestBit = kInf & (~kInf + 1);
    constexpr uint32_t kSign = (static_cast<uint32_t>(static_cast<typename E::Bits>(~0u)) / 2) + 1;
    return ((word & (kInf * kRepeat)) + kLowestBit * kRepeat) & (kSign * kRepeat);
  }
}

/// The whole words [first, first + word_count) of a block.
template <sp_float_format kFormat>
inline void AddWholeWords(const uint8_t* data, uint32_t first, uint32_t word_count,
                          PartSums& sums) {
  uint64_t sum0 = 0, sum1 = 0;
  uint32_t suspicion = 0;
  const uint32_t* keys0 = &kKeys.key[0][first];
  const uint32_t* keys1 = &kKeys.key[1][first];
  for (uint32_t i = 0; i < word_count; ++i) {
    uint32_t word = LoadLittleEndian<uint32_t>(data + 4 * i);
    sum0 += static_cast<uint64_t>(word) * keys0[i];
    sum1 += static_cast<uint64_t>(word) * keys1[i];
    suspicion |= Suspicion<kFormat>(word, 0u - ((first + i) & 1));
  }
  sums.lane[0] += sum0;
  sums.lane[1] += sum1;
  sums.is_suspect |= suspicion != 0;
}

template <sp_float_format kFormat>
PartSums Part(const uint8_t* data, uint32_t begin, uint32_t end) {
  PartSums sums;
  uint32_t first = (begin + 3) / 4;
  uint32_t last = end / 4;
  if (first > last) {
    AddPartialWord<kFormat>(data, begin, end, sums);
    return sums;
  }
  if (begin % 4 != 0) AddPartialWord<kFormat>(data, begin, first * 4, sums);
  AddWholeWords<kFormat>(data + (first * 4 - begin), first, last - first, sums);
  if (end % 4 != 0) AddPartialWord<kFormat>(data + (last * 4 - begin), last * 4, end, sums);
  return sums;
}

template <sp_float_format kFormat>
bool PartGroup(const uint8_t* data, PartSums* sums) {
  AddWholeWords<kFormat>(data, 0, kBlockWords, *sums);
  return sums->is_suspect;
}

/// That takes as long as to count them.
template <sp_float_format kFormat>
bool IsSuspectBlock(const uint8_t*) {
  return true;
}

template <sp_float_format kFormat>
void CountPart(const uint8_t* data, uint32_t length, sp_summary& summary) {
  CountElements<kFormat>(data, length / sizeof(typename Element<kFormat>::Bits), summary);
}

#include "src/digest/digest_driver.h"

}  // namespace

const Kernel kPortableKernel = DIGEST_KERNEL("portable");

}  // namespace shardproof::digest_internal
