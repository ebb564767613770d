// What the kernels of the digest share: keys, factors, element formats, and the table of kernels
// that the C ABI chooses from. Not for use outside src/digest. The numbers are
// SPECIFICATION.md's.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "src/digest/digest.h"

namespace shardproof::digest_internal {

inline constexpr uint32_t kBlockBytes = 4096;
inline constexpr uint32_t kBlockWords = kBlockBytes / 4;

constexpr uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t Factor(uint64_t lane, uint64_t block) {
  return Mix(0x70726f6f66000000u + (lane << 63) + block) | 1;
}

struct KeyTable {
  alignas(64) uint32_t key[2][kBlockWords];
};

constexpr KeyTable MakeKeyTable() {
  KeyTable table{};
  for (uint32_t lane = 0; lane < 2; ++lane) {
    for (uint32_t word = 0; word < kBlockWords; ++word) {
      uint64_t mixed = Mix(0x5368617264000000u + kBlockWords * lane + word);
      table.key[lane][word] = static_cast<uint32_t>(mixed >> 32) | 1;
    }
  }
  return table;
}

inline constexpr KeyTable kKeys = MakeKeyTable();

/// How to tell NaN and Inf from the bits. `kInfTwice` is the bits of infinity shifted left by one,
/// which drops the sign: shifted bits at or above it are not finite, and equal to it are Inf.
template <sp_float_format kFormat>
struct Element;

template <>
struct Element<SP_NO_FLOAT> {
  using Bits = uint8_t;
  static constexpr Bits kInfTwice = 0;
  static constexpr bool kHasInf = false;
};
template <>
struct Element<SP_F16> {
  using Bits = uint16_t;
  static constexpr Bits kInfTwice = 0xf800;
  static constexpr bool kHasInf = true;
};
template <>
struct Element<SP_BF16> {
  using Bits = uint16_t;
  static constexpr Bits kInfTwice = 0xff00;
  static constexpr bool kHasInf = true;
};
template <>
struct Element<SP_F32> {
  using Bits = uint32_t;
  static constexpr Bits kInfTwice = 0xff000000;
  static constexpr bool kHasInf = true;
};
template <>
struct Element<SP_F64> {
  using Bits = uint64_t;
  static constexpr Bits kInfTwice = 0xffe0000000000000;
  static constexpr bool kHasInf = true;
};
template <>
struct Element<SP_F8_E4M3FN> {
  using Bits = uint8_t;
  static constexpr Bits kInfTwice = 0xfe;  // The place of infinity is taken by NaN.
  static constexpr bool kHasInf = false;
};
template <>
struct Element<SP_F8_E5M2> {
  using Bits = uint8_t;
  static constexpr Bits kInfTwice = 0xf8;
  static constexpr bool kHasInf = true;
};

template <typename Bits>
Bits LoadLittleEndian(const uint8_t* data) {
  Bits bits = 0;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&bits, data, sizeof(bits));
  } else {
    for (size_t i = sizeof(bits); i > 0; --i) bits = static_cast<Bits>((bits << 8) | data[i - 1]);
  }
  return bits;
}

/// Nonzero if an element of the word may be NaN or Inf. `odd_mask` is all ones for the upper half
/// of a double, and zero for its lower half.
template <sp_float_format kFormat>
constexpr uint32_t Suspicion(uint32_t word, uint32_t odd_mask) {
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

/// Counts the elements of data[0, element_count).
template <sp_float_format kFormat>
void CountElements(const uint8_t* data, size_t element_count, sp_summary& summary) {
  using E = Element<kFormat>;
  for (size_t i = 0; i < element_count; ++i) {
    auto bits = LoadLittleEndian<typename E::Bits>(data + i * sizeof(typename E::Bits));
    auto twice = static_cast<typename E::Bits>(bits << 1);
    bool is_inf = E::kHasInf && twice == E::kInfTwice;
    summary.inf_count += is_inf;
    summary.nan_count += twice >= E::kInfTwice && !is_inf;
  }
}

/// The sums of a part of one block before the block's factors, and whether a value there may be NaN
/// or Inf, so that only then the part, still in the nearest cache, is counted exactly.
struct PartSums {
  uint64_t lane[2] = {0, 0};
  bool is_suspect = false;
};

/// Adds a word of which only the bytes [begin, end) of the block are held; data points at `begin`.
template <sp_float_format kFormat>
void AddPartialWord(const uint8_t* data, uint32_t begin, uint32_t end, PartSums& sums) {
  uint32_t value = 0;
  for (uint32_t i = 0; i < end - begin; ++i) {
    value |= static_cast<uint32_t>(data[i]) << (8 * ((begin + i) % 4));
  }
  sums.lane[0] += static_cast<uint64_t>(value) * kKeys.key[0][begin / 4];
  sums.lane[1] += static_cast<uint64_t>(value) * kKeys.key[1][begin / 4];
  using E = Element<kFormat>;
  if constexpr (kFormat != SP_NO_FLOAT && sizeof(typename E::Bits) < 4) {
    for (uint32_t shift = 0; shift < 32; shift += 8 * sizeof(typename E::Bits)) {
      sums.is_suspect |= static_cast<typename E::Bits>((value >> shift) << 1) >= E::kInfTwice;
    }
  }
}

/// One way to compute, for one kind of processor; its functions are indexed by sp_float_format.
struct Kernel {
  const char* name;
  void (*digest_runs[SP_F8_E5M2 + 1])(sp_summary* summary, const sp_run* runs, size_t run_count);
  void (*count_non_finite[SP_F8_E5M2 + 1])(sp_summary* summary, const uint8_t* data,
                                           uint64_t length);
};

extern const Kernel kPortableKernel;
#if defined(__x86_64__) && defined(__GNUC__)
#define SHARDPROOF_DIGEST_X86 1
extern const Kernel kAvx2Kernel;
extern const Kernel kAvx512Kernel;
#endif

/// The kernels that this machine can run, fastest first; the last is the portable one.
std::span<const Kernel* const> Kernels();

void DigestBlocks(const Kernel& kernel, sp_summary* summary, sp_digest* blocks,
                  uint64_t first_block, size_t block_count, uint64_t block_bytes,
                  const sp_run* runs, size_t run_count, sp_float_format format);

}  // namespace shardproof::digest_internal
