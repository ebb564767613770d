// What one thread of the digest's CUDA kernel adds up of a stretch: of a vector that it may hold in
// part, and of blocks that it holds whole. Also compiles for the host; digest_thread.h says what a
// `Context` is.
#pragma once

#include "src/digest/digest_vector.h"

namespace shardproof::digest_internal {

inline constexpr uint32_t kThreads = 256;
inline constexpr uint32_t kSharedFactors = kThreads;  // each thread makes one
inline constexpr uint64_t kNoBlock = ~uint64_t{0};
/// Stretches of at least that many bytes are taken a block of 4 KiB at a time; of shorter ones a
/// unit has many.
inline constexpr uint64_t kLongStretchBytes = kBlockBytes;
static_assert(kThreads * kVectorBytes == kBlockBytes, "a thread has the same keys in every block");

/// A run of one tensor, its stretches in the image and in memory as sp_run has them. Its units are
/// counted from first_unit in the launch.
struct Segment {
  uint64_t start, length, count, stride;
  const uint8_t* data;
  int64_t data_stride;
  uint64_t first_unit;
  uint32_t row;
  uint32_t format;  // sp_float_format
};

/// What is the same for all segments of a launch. `sums` has of each row row_words words, of which
/// the first four are lanes, NaN and Inf; `coverage` may be null, and has rows of as many words.
/// `blocks` are those of sp_digest_blocks, of the launch as a whole; block_count may be 0.
struct LaunchHead {
  uint64_t unit_count;
  uint64_t* sums;
  uint64_t* coverage;
  uint64_t* blocks;
  uint64_t first_block, block_count, block_bytes;
  uint32_t row_words;
  uint32_t segment_count;
};

/// What a thread has added up since the last flush.
struct ThreadSums {
  uint64_t lane[2] = {0, 0};
  uint64_t coverage[2] = {0, 0};
  uint32_t nan_count = 0;  // of one block of threads and one flush: less than 2^32
  uint32_t inf_count = 0;
};

template <typename Context>
DIGEST_THREAD VectorKeys KeysOf(const Context& context, uint32_t word) {
  VectorKeys keys;
  for (uint32_t lane = 0; lane < 2; ++lane) {
    const uint32_t* table = context.Keys(lane, word);
    for (uint32_t i = 0; i < kVectorWords; ++i) keys.key[lane][i] = table[i];
  }
  return keys;
}

/// One stretch: its bytes [start, end) of the image, of which the first is at `data`.
struct Stretch {
  uint64_t start, end;
  const uint8_t* data;
};

DIGEST_THREAD Stretch StretchOf(const Segment& segment, uint64_t index) {
  uint64_t start = segment.start + index * segment.stride;
  return {start, start + segment.length,
          segment.data + static_cast<int64_t>(index) * segment.data_stride};
}

/// What the stretch has of the vector that begins at byte `position` of the image, times the
/// factors.
DIGEST_SELDOM ThreadSums SumsOfVector(Stretch stretch, uint64_t position, VectorKeys keys,
                                      uint64_t factor0, uint64_t factor1, uint32_t format) {
  ThreadSums sums;
  uint64_t first = position < stretch.start ? stretch.start : position;
  uint64_t last = position + kVectorBytes < stretch.end ? position + kVectorBytes : stretch.end;
  if (first >= last) return sums;
  const uint8_t* at = stretch.data + (first - stretch.start);
  uint32_t low = static_cast<uint32_t>(first - position);
  uint32_t high = static_cast<uint32_t>(last - position);
  Vector vector = last - first == kVectorBytes
                      ? LoadWhole(at, first - stretch.start, stretch.end - last)
                      : LoadPart(at, low, high);
  Vector ones = Ones(low, high);
  sums.lane[0] = Product(vector, keys.key[0]) * factor0;
  sums.lane[1] = Product(vector, keys.key[1]) * factor1;
  sums.coverage[0] = Product(ones, keys.key[0]) * factor0;
  sums.coverage[1] = Product(ones, keys.key[1]) * factor1;
  if (format != SP_NO_FLOAT) {
    Counts counts = CountVector(vector, low, high, format);
    sums.nan_count = counts.nan_count;
    sums.inf_count = counts.inf_count;
  }
  return sums;
}

DIGEST_THREAD void AddSums(const ThreadSums& more, ThreadSums& sums) {
  for (uint32_t lane = 0; lane < 2; ++lane) {
    sums.lane[lane] += more.lane[lane];
    sums.coverage[lane] += more.coverage[lane];
  }
  sums.nan_count += more.nan_count;
  sums.inf_count += more.inf_count;
}

/// The NaN and Inf of this thread's vectors of consecutive whole blocks, of which the first is at
/// `at`. They are read once more, from a cache as a rule: where all is finite, nothing of this is
/// done.
DIGEST_SELDOM Counts CountWholeBlocks(Stretch stretch, const uint8_t* at, uint32_t count,
                                      uint32_t format) {
  Counts counts;
  const uint64_t bytes = stretch.end - stretch.start;
  for (uint32_t i = 0; i < count; ++i, at += kBlockBytes) {
    uint64_t before = static_cast<uint64_t>(at - stretch.data);
    Vector vector = LoadWhole(at, before, bytes - before - kVectorBytes);
    Counts more = CountVector(vector, 0, kVectorBytes, format);
    counts.nan_count += more.nan_count;
    counts.inf_count += more.inf_count;
  }
  return counts;
}

/// What a thread has of whole blocks before it is added to its sums.
struct WholeSums {
  uint64_t lane[2] = {0, 0};
  uint32_t suspicion = 0;
};

template <sp_float_format kFormat, typename Context>
DIGEST_THREAD void AddWhole(const Vector& vector, uint32_t factor, const VectorKeys& keys,
                            const Context& context, WholeSums& whole) {
  for (uint32_t lane = 0; lane < 2; ++lane) {
    whole.lane[lane] += Product(vector, keys.key[lane]) * context.Factor(lane, factor);
  }
  if constexpr (kFormat != SP_NO_FLOAT) Suspect<kFormat>(vector, whole.suspicion);
}

constexpr uint64_t CoverageOfBlock(uint32_t lane) {
  uint64_t sum = 0;
  for (uint32_t word = 0; word < kBlockWords; ++word) {
    sum += uint64_t{0x01010101} * kKeys.key[lane][word];
  }
  return sum;
}

/// Of a whole block: its threads would all add the same factor, so one of them does it for all.
DIGEST_THREAD void AddCoverage(uint64_t factor0, uint64_t factor1, ThreadSums& sums) {
  constexpr uint64_t kLane0 = CoverageOfBlock(0), kLane1 = CoverageOfBlock(1);
  sums.coverage[0] += kLane0 * factor0;
  sums.coverage[1] += kLane1 * factor1;
}

inline constexpr uint32_t kAtOnce = 4;  // so many reads are on their way while a thread adds up

/// The sums of whole blocks, of which this thread's vectors lie at `at` and every 4 KiB from there,
/// all aligned. It stands apart so that all reads that are on their way have registers.
template <sp_float_format kFormat, typename Context>
DIGEST_APART WholeSums SumsOfAligned(const uint8_t* at, uint32_t first_factor, uint32_t count,
                                     const Context& context) {
  const VectorKeys keys = KeysOf(context, context.Thread() * kVectorWords);
  WholeSums whole;
  uint32_t i = 0;
  if (count >= kAtOnce) {
    Vector next[kAtOnce];
    for (uint32_t k = 0; k < kAtOnce; ++k) next[k] = LoadAligned(at + k * kBlockBytes);
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
    for (; i + 2 * kAtOnce <= count; i += kAtOnce) {
      at += kAtOnce * kBlockBytes;
      for (uint32_t k = 0; k < kAtOnce; ++k) {
        Vector vector = next[k];
        next[k] = LoadAligned(at + k * kBlockBytes);
        AddWhole<kFormat>(vector, first_factor + i + k, keys, context, whole);
      }
    }
    at += kAtOnce * kBlockBytes;
    for (uint32_t k = 0; k < kAtOnce; ++k, ++i) {
      AddWhole<kFormat>(next[k], first_factor + i, keys, context, whole);
    }
  }
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
  for (; i < count; ++i, at += kBlockBytes) {
    AddWhole<kFormat>(LoadAligned(at), first_factor + i, keys, context, whole);
  }
  return whole;
}

/// As SumsOfAligned, for any address; `before` and `behind` as for LoadWhole, of the first vector.
template <sp_float_format kFormat, typename Context>
DIGEST_APART WholeSums SumsOfUnaligned(const uint8_t* at, uint64_t before, uint64_t behind,
                                       uint32_t first_factor, uint32_t count,
                                       const Context& context) {
  const VectorKeys keys = KeysOf(context, context.Thread() * kVectorWords);
  WholeSums whole;
#ifdef __CUDA_ARCH__
#pragma unroll 2
#endif
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t offset = i * kBlockBytes;
    Vector vector = LoadWhole(at + offset, before + offset, behind - offset);
    AddWhole<kFormat>(vector, first_factor + i, keys, context, whole);
  }
  return whole;
}

/// Consecutive blocks that lie wholly in the stretch, whose factors are shared from number
/// `first_factor` on; `at` is where this thread's vector of the first of them lies.
template <sp_float_format kFormat, typename Context>
DIGEST_THREAD void AddWholeBlocks(const Stretch& stretch, const uint8_t* at, uint32_t first_factor,
                                  uint32_t count, const Context& context, ThreadSums& sums) {
  const uint64_t before = static_cast<uint64_t>(at - stretch.data);
  const uint64_t behind = stretch.end - stretch.start - before - kVectorBytes;
  const WholeSums whole =
      AddressOf(at) % kVectorBytes == 0
          ? SumsOfAligned<kFormat>(at, first_factor, count, context)
          : SumsOfUnaligned<kFormat>(at, before, behind, first_factor, count, context);
  if (IsSuspect<kFormat>(whole.suspicion)) {
    Counts counts = CountWholeBlocks(stretch, at, count, kFormat);
    sums.nan_count += counts.nan_count;
    sums.inf_count += counts.inf_count;
  }
  for (uint32_t lane = 0; lane < 2; ++lane) sums.lane[lane] += whole.lane[lane];
  if (uint32_t own = context.Thread(); own < count) {
    AddCoverage(context.Factor(0, first_factor + own), context.Factor(1, first_factor + own), sums);
  }
}

}  // namespace shardproof::digest_internal
