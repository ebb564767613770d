// The 16 bytes that a thread of the digest's CUDA kernel reads at once: reading them from any
// address, their products with keys, and the NaN and Inf among them. Also compiles for the host.
#pragma once

#include "src/digest/digest_internal.h"

#ifdef __CUDACC__
#define DIGEST_THREAD __host__ __device__ __forceinline__
// What is seldom done stands apart, so that the inner loop keeps its numbers in registers.
#define DIGEST_SELDOM __host__ __device__ __noinline__
// The inner loops stand apart too: what lives around them would take the registers of their reads.
#define DIGEST_APART __host__ __device__ __noinline__
#else
#define DIGEST_THREAD inline
#define DIGEST_SELDOM inline
#define DIGEST_APART inline
#endif

namespace shardproof::digest_internal {

inline constexpr uint32_t kVectorBytes = 16;  // what a thread reads at once
inline constexpr uint32_t kVectorWords = 4;

struct Vector {
  uint32_t word[kVectorWords];
};

struct VectorKeys {
  uint32_t key[2][kVectorWords];
};

/// The sum of word * key.
DIGEST_THREAD uint64_t Product(const Vector& vector, const uint32_t* keys) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < kVectorWords; ++i) {
#ifdef __CUDA_ARCH__
    // Else the compiler widens the keys once and for all, and adds their upper halves, zeros.
    asm("mad.wide.u32 %0, %1, %2, %0;" : "+l"(sum) : "r"(vector.word[i]), "r"(keys[i]));
#else
    sum += static_cast<uint64_t>(vector.word[i]) * keys[i];
#endif
  }
  return sum;
}

// ---- Reading
// -------------------------------------------------------------------------------------

DIGEST_THREAD uint32_t LoadWord(const uint8_t* at) {
  return *reinterpret_cast<const uint32_t*>(at);  // aligned: a device reads it at once
}

DIGEST_THREAD Vector LoadAligned(const uint8_t* at) {
#ifdef __CUDA_ARCH__
  uint4 words = __ldcs(reinterpret_cast<const uint4*>(at));  // read once: not to be kept in caches
  return {{words.x, words.y, words.z, words.w}};
#else
  return {{LoadWord(at), LoadWord(at + 4), LoadWord(at + 8), LoadWord(at + 12)}};
#endif
}

DIGEST_THREAD uint32_t AddressOf(const uint8_t* at) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at));
}

/// 16 bytes at any address. `before` and `behind`: how many bytes of the stretch lie before them
/// and behind them; no other byte is touched.
DIGEST_THREAD Vector LoadWhole(const uint8_t* at, uint64_t before, uint64_t behind) {
  Vector vector;
  const uint32_t shift = 8 * (AddressOf(at) % 4);
  if (shift == 0) {
    for (uint32_t i = 0; i < kVectorWords; ++i) vector.word[i] = LoadWord(at + 4 * i);
  } else if (before >= 3 && behind >= 3) {
    const uint8_t* aligned = at - shift / 8;
    uint32_t low = LoadWord(aligned);
    for (uint32_t i = 0; i < kVectorWords; ++i) {
      uint32_t high = LoadWord(aligned + 4 * (i + 1));
      vector.word[i] = (low >> shift) | (high << (32 - shift));
      low = high;
    }
  } else {
    for (uint32_t i = 0; i < kVectorWords; ++i) {
      const uint8_t* byte = at + 4 * i;
      vector.word[i] = byte[0] | static_cast<uint32_t>(byte[1]) << 8 |
                       static_cast<uint32_t>(byte[2]) << 16 | static_cast<uint32_t>(byte[3]) << 24;
    }
  }
  return vector;
}

/// The bytes [low, high) of a vector, of which the first is at `at`; the others are zero.
DIGEST_THREAD Vector LoadPart(const uint8_t* at, uint32_t low, uint32_t high) {
  Vector vector = {};
  for (uint32_t i = 0; i < kVectorWords; ++i) {
    for (uint32_t k = 0; k < 4; ++k) {
      uint32_t byte = 4 * i + k;
      if (byte >= low && byte < high) {
        vector.word[i] |= static_cast<uint32_t>(at[byte - low]) << (8 * k);
      }
    }
  }
  return vector;
}

/// A vector whose bytes [low, high) are 1.
DIGEST_THREAD Vector Ones(uint32_t low, uint32_t high) {
  Vector vector = {};
  for (uint32_t byte = 0; byte < kVectorBytes; ++byte) {
    if (byte >= low && byte < high) vector.word[byte / 4] |= 1u << (8 * (byte % 4));
  }
  return vector;
}

// ---- NaN and Inf
// ---------------------------------------------------------------------------------

/// The places of signs, and the lowest bit of infinity, in each element of a word; of a double's
/// two words only the upper has them.
template <sp_float_format kFormat>
struct InWord {
  using Bits = typename Element<kFormat>::Bits;
  static constexpr uint32_t kBits = sizeof(Bits) < 4 ? 8 * sizeof(Bits) : 32;
  static constexpr uint32_t kRepeat = kBits == 8 ? 0x01010101 : kBits == 16 ? 0x00010001 : 1;
  static constexpr uint32_t kInf =
      static_cast<uint32_t>(Element<kFormat>::kInfTwice / 2 >> (sizeof(Bits) == 8 ? 32 : 0));
  static constexpr uint32_t kLowestBit = (kInf & (~kInf + 1)) * kRepeat;
  static constexpr uint32_t kSign = (uint32_t{1} << (kBits - 1)) * kRepeat;
};

/// Collects in the places of signs whether an element may be NaN or Inf, for which all bits of
/// infinity are set: adding the lowest of them then carries into the sign, and changes it. A carry
/// out of an element beside it is at most one more, which hides nothing.
template <sp_float_format kFormat>
DIGEST_THREAD void Suspect(const Vector& vector, uint32_t& suspicion) {
  constexpr bool kIsDouble = sizeof(typename Element<kFormat>::Bits) == 8;
  for (uint32_t i = kIsDouble; i < kVectorWords; i += kIsDouble ? 2 : 1) {
    suspicion |= (vector.word[i] + InWord<kFormat>::kLowestBit) ^ vector.word[i];
  }
}

template <sp_float_format kFormat>
DIGEST_THREAD bool IsSuspect(uint32_t suspicion) {
  return (suspicion & InWord<kFormat>::kSign) != 0;
}

struct Counts {
  uint32_t nan_count = 0, inf_count = 0;
};

/// Counts the elements that lie wholly in the bytes [low, high).
template <sp_float_format kFormat>
DIGEST_THREAD Counts CountVectorOf(const Vector& vector, uint32_t low, uint32_t high) {
  using E = Element<kFormat>;
  using Bits = typename E::Bits;
  constexpr uint32_t kSize = sizeof(Bits);
  Counts counts;
  for (uint32_t byte = 0; byte < kVectorBytes; byte += kSize) {
    if (byte < low || byte + kSize > high) continue;
    uint64_t bits = vector.word[byte / 4] >> (8 * (byte % 4));
    if constexpr (kSize == 8) bits |= static_cast<uint64_t>(vector.word[byte / 4 + 1]) << 32;
    Bits twice = static_cast<Bits>(static_cast<Bits>(bits) << 1);
    bool is_inf = E::kHasInf && twice == E::kInfTwice;
    counts.inf_count += is_inf;
    counts.nan_count += twice >= E::kInfTwice && !is_inf;
  }
  return counts;
}

DIGEST_SELDOM Counts CountVector(Vector vector, uint32_t low, uint32_t high, uint32_t format) {
  switch (format) {
    case SP_F16:
      return CountVectorOf<SP_F16>(vector, low, high);
    case SP_BF16:
      return CountVectorOf<SP_BF16>(vector, low, high);
    case SP_F32:
      return CountVectorOf<SP_F32>(vector, low, high);
    case SP_F64:
      return CountVectorOf<SP_F64>(vector, low, high);
    case SP_F8_E4M3FN:
      return CountVectorOf<SP_F8_E4M3FN>(vector, low, high);
    case SP_F8_E5M2:
      return CountVectorOf<SP_F8_E5M2>(vector, low, high);
    default:
      return {};
  }
}

}  // namespace shardproof::digest_internal
