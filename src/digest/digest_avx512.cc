// The digest with AVX-512: sixteen words a step; masks of bytes serve cuts at any byte.
#include "src/digest/digest_internal.h"

#ifdef SHARDPROOF_DIGEST_X86

// GCC 12 takes the deliberately undefined operands in its own intrinsics for mistakes.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

namespace shardproof::digest_internal {
namespace {

#define DIGEST_TARGET __attribute__((target("avx512f,avx512bw,popcnt")))
#define DIGEST_INLINE __attribute__((always_inline, target("avx512f,avx512bw,popcnt"))) inline

constexpr uint32_t kGroupBlocks = 2;  // They share each load of keys.
constexpr uint32_t kVectorBytes = 64;

DIGEST_INLINE __m512i OddWords(__m512i words) {
  return _mm512_castps_si512(_mm512_movehdup_ps(_mm512_castsi512_ps(words)));
}

/// Elements without their sign, as Element::kInfTwice wants them.
template <sp_float_format kFormat>
DIGEST_INLINE __m512i Twice(__m512i words) {
  switch (sizeof(typename Element<kFormat>::Bits)) {
    case 1:
      return _mm512_add_epi8(words, words);
    case 2:
      return _mm512_add_epi16(words, words);
    case 4:
      return _mm512_add_epi32(words, words);
    default:
      return _mm512_add_epi64(words, words);
  }
}

template <sp_float_format kFormat>
DIGEST_INLINE __m512i Max(__m512i a, __m512i b) {
  switch (sizeof(typename Element<kFormat>::Bits)) {
    case 1:
      return _mm512_max_epu8(a, b);
    case 2:
      return _mm512_max_epu16(a, b);
    case 4:
      return _mm512_max_epu32(a, b);
    default:
      return _mm512_max_epu64(a, b);
  }
}

/// How many elements of `twice` are at or above the bits of infinity.
template <sp_float_format kFormat>
DIGEST_INLINE uint64_t CountNotFinite(__m512i twice) {
  constexpr auto kInfTwice = Element<kFormat>::kInfTwice;
  switch (sizeof(kInfTwice)) {
    case 1:
      return __builtin_popcountll(
          _mm512_cmpge_epu8_mask(twice, _mm512_set1_epi8(static_cast<char>(kInfTwice))));
    case 2:
      return __builtin_popcountll(
          _mm512_cmpge_epu16_mask(twice, _mm512_set1_epi16(static_cast<int16_t>(kInfTwice))));
    case 4:
      return __builtin_popcountll(
          _mm512_cmpge_epu32_mask(twice, _mm512_set1_epi32(static_cast<int32_t>(kInfTwice))));
    default:
      return __builtin_popcountll(
          _mm512_cmpge_epu64_mask(twice, _mm512_set1_epi64(static_cast<int64_t>(kInfTwice))));
  }
}

template <sp_float_format kFormat>
DIGEST_INLINE uint64_t CountInf(__m512i twice) {
  constexpr auto kInfTwice = Element<kFormat>::kInfTwice;
  if (!Element<kFormat>::kHasInf) return 0;
  switch (sizeof(kInfTwice)) {
    case 1:
      return __builtin_popcountll(
          _mm512_cmpeq_epi8_mask(twice, _mm512_set1_epi8(static_cast<char>(kInfTwice))));
    case 2:
      return __builtin_popcountll(
          _mm512_cmpeq_epi16_mask(twice, _mm512_set1_epi16(static_cast<int16_t>(kInfTwice))));
    case 4:
      return __builtin_popcountll(
          _mm512_cmpeq_epi32_mask(twice, _mm512_set1_epi32(static_cast<int32_t>(kInfTwice))));
    default:
      return __builtin_popcountll(
          _mm512_cmpeq_epi64_mask(twice, _mm512_set1_epi64(static_cast<int64_t>(kInfTwice))));
  }
}

struct Keys {
  __m512i even0, odd0;
  __m512i even1, odd1;
};

DIGEST_INLINE Keys LoadKeys(uint32_t word) {
  __m512i keys0 = _mm512_load_si512(&kKeys.key[0][word]);
  __m512i keys1 = _mm512_load_si512(&kKeys.key[1][word]);
  return {keys0, OddWords(keys0), keys1, OddWords(keys1)};
}

struct Sums {
  __m512i lane0, lane1;
};

template <sp_float_format kFormat>
DIGEST_INLINE void AddWords(__m512i words, const Keys& keys, Sums& sums, __m512i& largest) {
  __m512i odd_words = OddWords(words);
  __m512i even0 = _mm512_mul_epu32(words, keys.even0);
  __m512i odd0 = _mm512_mul_epu32(odd_words, keys.odd0);
  __m512i even1 = _mm512_mul_epu32(words, keys.even1);
  __m512i odd1 = _mm512_mul_epu32(odd_words, keys.odd1);
  sums.lane0 = _mm512_add_epi64(_mm512_add_epi64(sums.lane0, even0), odd0);
  sums.lane1 = _mm512_add_epi64(_mm512_add_epi64(sums.lane1, even1), odd1);
  if constexpr (kFormat != SP_NO_FLOAT) {
    largest = Max<kFormat>(largest, Twice<kFormat>(words));
  }
}

DIGEST_INLINE void AddLanes(const Sums& sums, PartSums& part) {
  __m512i wide = _mm512_add_epi64(_mm512_unpacklo_epi64(sums.lane0, sums.lane1),
                                  _mm512_unpackhi_epi64(sums.lane0, sums.lane1));
  __m256i pairs =
      _mm256_add_epi64(_mm512_castsi512_si256(wide), _mm512_extracti64x4_epi64(wide, 1));
  __m128i both = _mm_add_epi64(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  part.lane[0] += static_cast<uint64_t>(_mm_cvtsi128_si64(both));
  part.lane[1] += static_cast<uint64_t>(_mm_extract_epi64(both, 1));
}

/// Processors' own prefetchers stop at a page; a prefetch past the end of the data is harmless, and
/// the sum is of integers because a pointer there may not be formed. Into the second cache: an EPYC
/// that was to fetch both streams into the nearest one read at half its speed; a Xeon does as well.
DIGEST_INLINE void PrefetchNextGroup(const uint8_t* at) {
  uintptr_t next = reinterpret_cast<uintptr_t>(at) + kGroupBlocks * kBlockBytes;
  _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T1);
}

/// Sums of two blocks, by name rather than in an array, so that they stay in registers.
template <sp_float_format kFormat>
DIGEST_TARGET bool PartGroup(const uint8_t* data, PartSums* parts) {
  Sums first = {}, second = {};
  __m512i largest = _mm512_setzero_si512();
  for (uint32_t offset = 0; offset < kBlockBytes; offset += kVectorBytes) {
    const uint8_t* at = data + offset;
    PrefetchNextGroup(at);
    PrefetchNextGroup(at + kBlockBytes);
    Keys keys = LoadKeys(offset / 4);
    AddWords<kFormat>(_mm512_loadu_si512(at), keys, first, largest);
    AddWords<kFormat>(_mm512_loadu_si512(at + kBlockBytes), keys, second, largest);
  }
  AddLanes(first, parts[0]);
  AddLanes(second, parts[1]);
  return kFormat != SP_NO_FLOAT && CountNotFinite<kFormat>(largest) != 0;
}

/// The bytes [begin, end) of the block that lie within [offset, offset + 64).
DIGEST_INLINE __mmask64 HeldBytes(uint32_t offset, uint32_t begin, uint32_t end) {
  uint64_t mask = ~uint64_t{0};
  if (begin > offset) mask <<= begin - offset;
  if (end < offset + kVectorBytes) mask &= ~uint64_t{0} >> (offset + kVectorBytes - end);
  return mask;
}

template <sp_float_format kFormat>
DIGEST_INLINE PartSums Part(const uint8_t* data, uint32_t begin, uint32_t end) {
  PartSums part;
  Sums sums = {};
  __m512i largest = _mm512_setzero_si512();
  uint32_t offset = begin / kVectorBytes * kVectorBytes;
  const uint8_t* at = data - (begin - offset);
  if (offset < begin) {
    __m512i words = _mm512_maskz_loadu_epi8(HeldBytes(offset, begin, end), at);
    AddWords<kFormat>(words, LoadKeys(offset / 4), sums, largest);
    offset += kVectorBytes;
    at += kVectorBytes;
  }
  for (; offset + kVectorBytes <= end; offset += kVectorBytes, at += kVectorBytes) {
    AddWords<kFormat>(_mm512_loadu_si512(at), LoadKeys(offset / 4), sums, largest);
  }
  if (offset < end) {
    __m512i words = _mm512_maskz_loadu_epi8(HeldBytes(offset, begin, end), at);
    AddWords<kFormat>(words, LoadKeys(offset / 4), sums, largest);
  }
  AddLanes(sums, part);
  part.is_suspect = kFormat != SP_NO_FLOAT && CountNotFinite<kFormat>(largest) != 0;
  return part;
}

template <sp_float_format kFormat>
DIGEST_TARGET bool IsSuspectBlock(const uint8_t* data) {
  __m512i largest = _mm512_setzero_si512(), other = largest;
  for (uint32_t offset = 0; offset < kBlockBytes; offset += 2 * kVectorBytes) {
    largest = Max<kFormat>(largest, Twice<kFormat>(_mm512_loadu_si512(data + offset)));
    other = Max<kFormat>(other, Twice<kFormat>(_mm512_loadu_si512(data + offset + kVectorBytes)));
  }
  return CountNotFinite<kFormat>(Max<kFormat>(largest, other)) != 0;
}

template <sp_float_format kFormat>
DIGEST_TARGET void CountPart(const uint8_t* data, uint32_t length, sp_summary& summary) {
  for (uint32_t offset = 0; offset < length; offset += kVectorBytes) {
    __m512i words = _mm512_maskz_loadu_epi8(HeldBytes(offset, 0, length), data + offset);
    uint64_t inf_count = CountInf<kFormat>(Twice<kFormat>(words));
    summary.nan_count += CountNotFinite<kFormat>(Twice<kFormat>(words)) - inf_count;
    summary.inf_count += inf_count;
  }
}

#include "src/digest/digest_driver.h"

}  // namespace

const Kernel kAvx512Kernel = DIGEST_KERNEL("avx512");

}  // namespace shardproof::digest_internal

#endif  // SHARDPROOF_DIGEST_X86
