// The digest in plain C++, for any processor; the yardstick of the vector kernels.
#include "src/digest/digest_internal.h"

namespace shardproof::digest_internal {
namespace {

#define DIGEST_TARGET
constexpr uint32_t kGroupBlocks = 1;

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
