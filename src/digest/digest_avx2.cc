// The digest with AVX2: eight words a step, products of even and odd words apart.
#include "src/digest/digest_internal.h"

#ifdef SHARDPROOF_DIGEST_X86

#include <immintrin.h>

namespace shardproof::digest_internal {
namespace {

#define DIGEST_TARGET __attribute__((target("avx2,popcnt")))
#define DIGEST_INLINE __attribute__((always_inline, target("avx2,popcnt"))) inline

// Two blocks share each load of keys; with four, the sums no longer fit the registers.
constexpr uint32_t kGroupBlocks = 2;
constexpr uint32_t kVectorBytes = 32;
constexpr uint32_t kVectorWords = 8;

DIGEST_INLINE __m256i Load(const void* data) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(data));
}

DIGEST_INLINE __m256i OddWords(__m256i words) {
  return _mm256_castps_si256(_mm256_movehdup_ps(_mm256_castsi256_ps(words)));
}

/// Elements without their sign, as Element::kInfTwice wants them; of a double, its upper half.
template <sp_float_format kFormat>
DIGEST_INLINE __m256i Twice(__m256i words, __m256i odd_words) {
  switch (sizeof(typename Element<kFormat>::Bits)) {
    case 1:
      return _mm256_add_epi8(words, words);
    case 2:
      return _mm256_add_epi16(words, words);
    case 4:
      return _mm256_add_epi32(words, words);
    default:
      return _mm256_add_epi32(odd_words, odd_words);
  }
}

template <sp_float_format kFormat>
DIGEST_INLINE __m256i Max(__m256i a, __m256i b) {
  switch (sizeof(typename Element<kFormat>::Bits)) {
    case 1:
      return _mm256_max_epu8(a, b);
    case 2:
      return _mm256_max_epu16(a, b);
    default:
      return _mm256_max_epu32(a, b);
  }
}

template <sp_float_format kFormat>
DIGEST_INLINE __m256i Equal(__m256i a, __m256i b) {
  switch (sizeof(typename Element<kFormat>::Bits)) {
    case 1:
      return _mm256_cmpeq_epi8(a, b);
    case 2:
      return _mm256_cmpeq_epi16(a, b);
    default:
      return _mm256_cmpeq_epi32(a, b);
  }
}

template <sp_float_format kFormat>
DIGEST_INLINE __m256i Threshold() {
  constexpr auto kInfTwice = Element<kFormat>::kInfTwice;
  switch (sizeof(kInfTwice)) {
    case 1:
      return _mm256_set1_epi8(static_cast<char>(kInfTwice));
    case 2:
      return _mm256_set1_epi16(static_cast<int16_t>(kInfTwice));
    case 4:
      return _mm256_set1_epi32(static_cast<int32_t>(kInfTwice));
    default:
      return _mm256_set1_epi32(static_cast<int32_t>(static_cast<uint64_t>(kInfTwice) >> 32));
  }
}

struct Keys {
  __m256i even0, odd0;
  __m256i even1, odd1;
};

DIGEST_INLINE Keys LoadKeys(uint32_t word) {
  __m256i keys0 = Load(&kKeys.key[0][word]);
  __m256i keys1 = Load(&kKeys.key[1][word]);
  return {keys0, OddWords(keys0), keys1, OddWords(keys1)};
}

struct Sums {
  __m256i lane0, lane1;
};

template <sp_float_format kFormat>
DIGEST_INLINE void AddWords(__m256i words, const Keys& keys, Sums& sums, __m256i& largest) {
  __m256i odd_words = OddWords(words);
  __m256i even0 = _mm256_mul_epu32(words, keys.even0);
  __m256i odd0 = _mm256_mul_epu32(odd_words, keys.odd0);
  __m256i even1 = _mm256_mul_epu32(words, keys.even1);
  __m256i odd1 = _mm256_mul_epu32(odd_words, keys.odd1);
  sums.lane0 = _mm256_add_epi64(_mm256_add_epi64(sums.lane0, even0), odd0);
  sums.lane1 = _mm256_add_epi64(_mm256_add_epi64(sums.lane1, even1), odd1);
  if constexpr (kFormat != SP_NO_FLOAT) {
    largest = Max<kFormat>(largest, Twice<kFormat>(words, odd_words));
  }
}

DIGEST_INLINE void AddLanes(const Sums& sums, PartSums& part) {
  __m256i pairs = _mm256_add_epi64(_mm256_unpacklo_epi64(sums.lane0, sums.lane1),
                                   _mm256_unpackhi_epi64(sums.lane0, sums.lane1));
  __m128i both = _mm_add_epi64(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  part.lane[0] += static_cast<uint64_t>(_mm_cvtsi128_si64(both));
  part.lane[1] += static_cast<uint64_t>(_mm_extract_epi64(both, 1));
}

template <sp_float_format kFormat>
DIGEST_INLINE bool ReachesThreshold(__m256i largest) {
  if constexpr (kFormat == SP_NO_FLOAT) return false;
  __m256i reached = Equal<kFormat>(Max<kFormat>(largest, Threshold<kFormat>()), largest);
  return _mm256_movemask_epi8(reached) != 0;
}

/// Processors' own prefetchers stop at a page; a prefetch past the end of the data is harmless, and
/// the sum is of integers because a pointer there may not be formed. Into the second cache: an EPYC
/// that was to fetch both streams into the nearest one read at half its speed; a Xeon does as well.
DIGEST_INLINE void PrefetchNextGroup(const uint8_t* at) {
  uintptr_t next = reinterpret_cast<uintptr_t>(at) + kGroupBlocks * kBlockBytes;
  _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T1);
}

/// The sums of two blocks, by name rather than in an array, so that they stay in registers.
struct PairSums {
  Sums first, second;
  __m256i largest;
};

template <sp_float_format kFormat>
DIGEST_INLINE void AddToPair(const uint8_t* data, uint32_t offset, PairSums& pair) {
  Keys keys = LoadKeys(offset / 4);
  AddWords<kFormat>(Load(data + offset), keys, pair.first, pair.largest);
  AddWords<kFormat>(Load(data + kBlockBytes + offset), keys, pair.second, pair.largest);
}

template <sp_float_format kFormat>
DIGEST_TARGET bool PartGroup(const uint8_t* data, PartSums* parts) {
  PairSums pair = {};
  for (uint32_t offset = 0; offset < kBlockBytes; offset += 2 * kVectorBytes) {
    PrefetchNextGroup(data + offset);
    PrefetchNextGroup(data + kBlockBytes + offset);
    AddToPair<kFormat>(data, offset, pair);
    AddToPair<kFormat>(data, offset + kVectorBytes, pair);
  }
  AddLanes(pair.first, parts[0]);
  AddLanes(pair.second, parts[1]);
  return ReachesThreshold<kFormat>(pair.largest);
}

/// The words [first, last) of the block that lie within [word, word + 8); `data` points at `word`.
DIGEST_INLINE __m256i LoadWords(const uint8_t* data, uint32_t word, uint32_t first, uint32_t last) {
  __m256i index = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(word)),
                                   _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  __m256i is_before = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(first)), index);
  __m256i is_held = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(last)), index);
  return _mm256_maskload_epi32(reinterpret_cast<const int*>(data),
                               _mm256_andnot_si256(is_before, is_held));
}

/// Adds the whole words [first, last) of a block; `data` points at its byte `begin`.
template <sp_float_format kFormat>
DIGEST_INLINE void AddWholeWords(const uint8_t* data, uint32_t begin, uint32_t first, uint32_t last,
                                 PartSums& part) {
  Sums sums = {};
  __m256i largest = _mm256_setzero_si256();
  uint32_t word = first / kVectorWords * kVectorWords;
  const uint8_t* at = data + (static_cast<int64_t>(word) * 4 - static_cast<int64_t>(begin));
  if (word < first) {
    AddWords<kFormat>(LoadWords(at, word, first, last), LoadKeys(word), sums, largest);
    word += kVectorWords;
    at += kVectorBytes;
  }
  for (; word + kVectorWords <= last; word += kVectorWords, at += kVectorBytes) {
    AddWords<kFormat>(Load(at), LoadKeys(word), sums, largest);
  }
  if (word < last) {
    AddWords<kFormat>(LoadWords(at, word, first, last), LoadKeys(word), sums, largest);
  }
  AddLanes(sums, part);
  part.is_suspect |= ReachesThreshold<kFormat>(largest);
}

template <sp_float_format kFormat>
DIGEST_INLINE PartSums Part(const uint8_t* data, uint32_t begin, uint32_t end) {
  PartSums part;
  uint32_t first = (begin + 3) / 4;
  uint32_t last = end / 4;
  if (first > last) {
    AddPartialWord<kFormat>(data, begin, end, part);
    return part;
  }
  if (begin % 4 != 0) AddPartialWord<kFormat>(data, begin, first * 4, part);
  if (first < last) AddWholeWords<kFormat>(data, begin, first, last, part);
  if (end % 4 != 0) AddPartialWord<kFormat>(data + (last * 4 - begin), last * 4, end, part);
  return part;
}

template <sp_float_format kFormat>
DIGEST_TARGET bool IsSuspectBlock(const uint8_t* data) {
  __m256i largest = _mm256_setzero_si256(), other = largest;
  for (uint32_t offset = 0; offset < kBlockBytes; offset += 2 * kVectorBytes) {
    __m256i words = Load(data + offset), more = Load(data + offset + kVectorBytes);
    largest = Max<kFormat>(largest, Twice<kFormat>(words, OddWords(words)));
    other = Max<kFormat>(other, Twice<kFormat>(more, OddWords(more)));
  }
  return ReachesThreshold<kFormat>(Max<kFormat>(largest, other));
}

DIGEST_INLINE uint64_t TrueBytes(__m256i mask) {
  return static_cast<uint64_t>(
      __builtin_popcount(static_cast<uint32_t>(_mm256_movemask_epi8(mask))));
}

template <sp_float_format kFormat>
DIGEST_TARGET void CountPart(const uint8_t* data, uint32_t length, sp_summary& summary) {
  constexpr uint32_t kSize = sizeof(typename Element<kFormat>::Bits);
  uint32_t offset = 0;
  uint64_t not_finite_bytes = 0;
  uint64_t inf_bytes = 0;
  for (; kSize < 8 && offset + kVectorBytes <= length; offset += kVectorBytes) {
    __m256i twice = Twice<kFormat>(Load(data + offset), Load(data + offset));
    __m256i threshold = Threshold<kFormat>();
    not_finite_bytes += TrueBytes(Equal<kFormat>(Max<kFormat>(twice, threshold), twice));
    if (Element<kFormat>::kHasInf) inf_bytes += TrueBytes(Equal<kFormat>(twice, threshold));
  }
  summary.nan_count += (not_finite_bytes - inf_bytes) / kSize;
  summary.inf_count += inf_bytes / kSize;
  CountElements<kFormat>(data + offset, (length - offset) / kSize, summary);
}

#include "src/digest/digest_driver.h"

}  // namespace

const Kernel kAvx2Kernel = DIGEST_KERNEL("avx2");

}  // namespace shardproof::digest_internal

#endif  // SHARDPROOF_DIGEST_X86
