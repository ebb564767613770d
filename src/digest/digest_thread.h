// What one thread of the digest's CUDA kernel does, as functions that also compile for the host:
// unit tests run every block and thread of a launch there. A launch is cut into units of about 4
// KiB of work, and each block of threads takes a stretch of consecutive units. SPECIFICATION.md has
// the numbers.
//
// A `Context` stands for what threads of a block share. All threads of a block call each of these
// together, in the same order:
//   ShareFactors(count, block_of)   from now on Factor(lane, i) is that of block block_of(i);
//                                   i < count, at most kSharedFactors
//   AddToBlock(index, lanes)        adds to the grid's block; kNoBlock: this thread has nothing
//   Flush(row, sums)                adds the sums of all threads to the row of the results
// and each thread for itself: Thread(), BlockOfThreads(), BlocksOfThreads(), Keys(lane, word), of
// which it reads four words from one that is a multiple of four.
#pragma once

#include "src/digest/digest_stretch.h"

namespace shardproof::digest_internal {

// ---- Long stretches, a block of 4 KiB at a time
// --------------------------------------------------

/// The blocks [block, block + count) of the image, at most kSharedFactors, of a stretch that begins
/// before the end of the first and ends behind the beginning of the last.
template <sp_float_format kFormat, typename Context>
DIGEST_THREAD void AddBlocks(const Stretch& stretch, uint64_t block, uint32_t count,
                             Context& context, ThreadSums& sums) {
  context.ShareFactors(count, [block](uint32_t i) { return block + i; });
  const uint32_t offset = context.Thread() * kVectorBytes;
  const bool has_head = block * kBlockBytes < stretch.start;
  const bool has_tail = (block + count) * kBlockBytes > stretch.end && (count > 1 || !has_head);
  if (has_head) {
    AddSums(SumsOfVector(stretch, block * kBlockBytes + offset, KeysOf(context, offset / 4),
                         context.Factor(0, 0), context.Factor(1, 0), kFormat),
            sums);
  }
  const uint32_t first = has_head, whole = count - has_head - has_tail;
  if (whole > 0) {
    const uint8_t* at = stretch.data + ((block + first) * kBlockBytes + offset - stretch.start);
    AddWholeBlocks<kFormat>(stretch, at, first, whole, context, sums);
  }
  if (has_tail) {
    AddSums(SumsOfVector(stretch, (block + count - 1) * kBlockBytes + offset,
                         KeysOf(context, offset / 4), context.Factor(0, count - 1),
                         context.Factor(1, count - 1), kFormat),
            sums);
  }
}

/// How many blocks of 4 KiB each stretch of a long segment is given; where stretches lie
/// differently in their blocks, some of these units are empty.
DIGEST_THREAD uint64_t BlocksOfStretch(const Segment& segment) {
  if (segment.count == 1 || segment.stride % kBlockBytes == 0) {
    return (segment.start % kBlockBytes + segment.length + kBlockBytes - 1) / kBlockBytes;
  }
  return (segment.length + kBlockBytes - 2) / kBlockBytes + 1;
}

DIGEST_THREAD uint64_t Least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/// Where the digests of the grid are asked for, adds what came since `before` to the grid's block.
template <typename Context>
DIGEST_THREAD void AddToGrid(const LaunchHead& head, uint64_t block, bool has_any,
                             const uint64_t* before, const ThreadSums& sums, Context& context) {
  if (head.block_count == 0) return;
  uint64_t index = block * kBlockBytes / head.block_bytes - head.first_block;
  uint64_t lanes[2] = {sums.lane[0] - before[0], sums.lane[1] - before[1]};
  context.AddToBlock(has_any && index < head.block_count ? index : kNoBlock, lanes);
}

// ---- Long stretches of few blocks, such as rows of a shard
// ---------------------------------------

/// Goes from unit to unit of a long segment.
struct Walk {
  uint64_t index, part;  // the stretch, and which of its blocks
  Stretch stretch;

  DIGEST_THREAD uint64_t Block() const { return stretch.start / kBlockBytes + part; }
  DIGEST_THREAD bool IsWhole() const {
    return Block() * kBlockBytes >= stretch.start && (Block() + 1) * kBlockBytes <= stretch.end;
  }
  DIGEST_THREAD void Next(const Segment& segment, uint64_t per_stretch) {
    if (++part == per_stretch) {
      part = 0;
      stretch = StretchOf(segment, ++index);
    }
  }
};

DIGEST_THREAD Walk WalkFrom(const Segment& segment, uint64_t per_stretch, uint64_t unit) {
  uint64_t index = unit / per_stretch;
  return {index, unit % per_stretch, StretchOf(segment, index)};
}

/// The next unit's vector of this thread, if its block lies wholly in its stretch and all of it is
/// finite; else adds what it has of it, and \returns zeros.
template <sp_float_format kFormat, typename Context>
DIGEST_THREAD Vector NextVector(const Walk& walk, uint32_t factor, const VectorKeys& keys,
                                const Context& context, ThreadSums& sums) {
  const uint64_t position = walk.Block() * kBlockBytes + context.Thread() * kVectorBytes;
  if (walk.IsWhole()) {
    const uint64_t before = position - walk.stretch.start;
    const uint8_t* at = walk.stretch.data + before;
    if (AddressOf(at) % kVectorBytes == 0) return LoadAligned(at);
    return LoadWhole(at, before, walk.stretch.end - position - kVectorBytes);
  }
  if (position < walk.stretch.end && position + kVectorBytes > walk.stretch.start) {
    AddSums(SumsOfVector(walk.stretch, position, keys, context.Factor(0, factor),
                         context.Factor(1, factor), kFormat),
            sums);
  }
  return {};
}

/// Units [unit, unit + count), at most kSharedFactors, of whichever stretches.
template <sp_float_format kFormat, typename Context>
DIGEST_APART void AddRows(const Segment& segment, uint64_t unit, uint32_t count, Context& context,
                          ThreadSums& sums) {
  const VectorKeys keys = KeysOf(context, context.Thread() * kVectorWords);
  const uint64_t per_stretch = BlocksOfStretch(segment);
  context.ShareFactors(
      count, [&](uint32_t i) { return WalkFrom(segment, per_stretch, unit + i).Block(); });
  WholeSums whole;
  Walk walk = WalkFrom(segment, per_stretch, unit);
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
  for (uint32_t i = 0; i < count; i += kAtOnce) {
    Vector vectors[kAtOnce] = {};
    for (uint32_t k = 0; k < kAtOnce && i + k < count; ++k) {
      vectors[k] = NextVector<kFormat>(walk, i + k, keys, context, sums);
      walk.Next(segment, per_stretch);
    }
    uint32_t suspicion = 0;
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      const uint32_t factor = i + k < count ? i + k : i;
      for (uint32_t lane = 0; lane < 2; ++lane) {
        whole.lane[lane] += Product(vectors[k], keys.key[lane]) * context.Factor(lane, factor);
      }
      if constexpr (kFormat != SP_NO_FLOAT) Suspect<kFormat>(vectors[k], suspicion);
    }
    if (!IsSuspect<kFormat>(suspicion)) continue;
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      Counts counts = CountVector(vectors[k], 0, kVectorBytes, kFormat);
      sums.nan_count += counts.nan_count;
      sums.inf_count += counts.inf_count;
    }
  }
  for (uint32_t lane = 0; lane < 2; ++lane) sums.lane[lane] += whole.lane[lane];
  if (uint32_t own = context.Thread(); own < count) {
    if (WalkFrom(segment, per_stretch, unit + own).IsWhole()) {
      AddCoverage(context.Factor(0, own), context.Factor(1, own), sums);
    }
  }
}

/// Stretches of fewer blocks share their factors with others.
inline constexpr uint64_t kManyBlocks = 64;

/// Units [unit, unit + count) of a long segment.
template <sp_float_format kFormat, typename Context>
DIGEST_APART void AddLongUnits(const LaunchHead& head, const Segment& segment, uint64_t unit,
                               uint64_t count, Context& context, ThreadSums& sums) {
  const uint64_t per_stretch = BlocksOfStretch(segment);
  while (count > 0 && segment.count > 1 && per_stretch < kManyBlocks && head.block_count == 0) {
    const uint64_t step = Least(count, kSharedFactors);
    AddRows<kFormat>(segment, unit, static_cast<uint32_t>(step), context, sums);
    unit += step;
    count -= step;
  }
  while (count > 0) {
    const uint64_t part = unit % per_stretch;
    const Stretch stretch = StretchOf(segment, unit / per_stretch);
    uint64_t step = Least(count, per_stretch - part);
    unit += step;
    count -= step;
    uint64_t block = stretch.start / kBlockBytes + part;
    const uint64_t end = Least(block + step, (stretch.end - 1) / kBlockBytes + 1);
    while (block < end) {
      uint64_t blocks = Least(end - block, kSharedFactors);
      if (head.block_count > 0) {
        uint64_t per_grid_block = head.block_bytes / kBlockBytes;
        blocks = Least(blocks, per_grid_block - block % per_grid_block);
      }
      const uint64_t before[2] = {sums.lane[0], sums.lane[1]};
      AddBlocks<kFormat>(stretch, block, static_cast<uint32_t>(blocks), context, sums);
      AddToGrid(head, block, true, before, sums, context);
      block += blocks;
    }
  }
}

// ---- Short stretches, a vector for each thread
// ---------------------------------------------------

/// How many vectors of 16 bytes each stretch of a short segment is given.
DIGEST_THREAD uint64_t VectorsOfStretch(const Segment& segment) {
  return (segment.length + kVectorBytes - 2) / kVectorBytes + 1;
}

/// What the whole vector at `position` of the image comes to.
template <sp_float_format kFormat, typename Context>
DIGEST_THREAD void AddVector(const Vector& vector, uint64_t position, const Context& context,
                             ThreadSums& sums) {
  const VectorKeys keys = KeysOf(context, static_cast<uint32_t>(position / 4 % kBlockWords));
  for (uint32_t lane = 0; lane < 2; ++lane) {
    uint64_t keys_sum = 0;
    for (uint32_t i = 0; i < kVectorWords; ++i) keys_sum += keys.key[lane][i];
    const uint64_t factor = Factor(lane, position / kBlockBytes);
    sums.lane[lane] += Product(vector, keys.key[lane]) * factor;
    sums.coverage[lane] += 0x01010101 * keys_sum * factor;
  }
  if constexpr (kFormat != SP_NO_FLOAT) {
    uint32_t suspicion = 0;
    Suspect<kFormat>(vector, suspicion);
    if (!IsSuspect<kFormat>(suspicion)) return;
    const Counts counts = CountVector(vector, 0, kVectorBytes, kFormat);
    sums.nan_count += counts.nan_count;
    sums.inf_count += counts.inf_count;
  }
}

/// Units [unit, unit + count) of a short segment, where no digests of the grid are asked for: some
/// of a thread's reads are on their way at once.
template <sp_float_format kFormat, typename Context>
DIGEST_APART void AddShortUnits(const Segment& segment, uint64_t unit, uint64_t count,
                                const Context& context, ThreadSums& sums) {
  constexpr uint64_t kNotWhole = ~uint64_t{0};
  const uint32_t per_stretch = static_cast<uint32_t>(VectorsOfStretch(segment));
  const uint64_t first = unit * kThreads + context.Thread();
  uint64_t index = first / per_stretch;
  uint32_t part = static_cast<uint32_t>(first % per_stretch);
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
  for (uint64_t i = 0; i < count; i += kAtOnce) {
    Vector vectors[kAtOnce] = {};
    uint64_t positions[kAtOnce];
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      positions[k] = kNotWhole;
      if (i + k < count && index < segment.count) {
        const Stretch stretch = StretchOf(segment, index);
        const uint64_t position = (stretch.start / kVectorBytes + part) * kVectorBytes;
        const uint64_t before = position - stretch.start;
        const uint8_t* at = stretch.data + before;
        if (position >= stretch.start && position + kVectorBytes <= stretch.end) {
          positions[k] = position;
          vectors[k] = AddressOf(at) % kVectorBytes == 0
                           ? LoadAligned(at)
                           : LoadWhole(at, before, stretch.end - position - kVectorBytes);
        } else if (position < stretch.end) {
          const uint64_t block = position / kBlockBytes;
          const uint32_t word = static_cast<uint32_t>(position / 4 % kBlockWords);
          AddSums(SumsOfVector(stretch, position, KeysOf(context, word), Factor(0, block),
                               Factor(1, block), kFormat),
                  sums);
        }
      }
      part += kThreads % per_stretch;
      index += kThreads / per_stretch;
      if (part >= per_stretch) {
        part -= per_stretch;
        ++index;
      }
    }
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      if (positions[k] != kNotWhole) AddVector<kFormat>(vectors[k], positions[k], context, sums);
    }
  }
}

/// A unit of a short segment, where the grid's digests are asked for.
template <typename Context>
DIGEST_THREAD void AddShortUnit(const LaunchHead& head, const Segment& segment, uint64_t unit,
                                Context& context, ThreadSums& sums) {
  const uint32_t per_stretch = static_cast<uint32_t>(VectorsOfStretch(segment));
  const uint64_t first = unit * kThreads;
  const uint32_t number = static_cast<uint32_t>(first % per_stretch) + context.Thread();
  const uint64_t index = first / per_stretch + number / per_stretch;
  const uint64_t before[2] = {sums.lane[0], sums.lane[1]};
  uint64_t block = 0;
  const bool has_any = index < segment.count;
  if (has_any) {
    const Stretch stretch = StretchOf(segment, index);
    const uint64_t position = (stretch.start / kVectorBytes + number % per_stretch) * kVectorBytes;
    block = position / kBlockBytes;
    if (position < stretch.end) {
      const uint32_t word = static_cast<uint32_t>(position / 4 % kBlockWords);
      AddSums(SumsOfVector(stretch, position, KeysOf(context, word), Factor(0, block),
                           Factor(1, block), segment.format),
              sums);
    }
  }
  AddToGrid(head, block, has_any, before, sums, context);
}

// ---- The launch
// ----------------------------------------------------------------------------------

DIGEST_THREAD bool IsLong(const Segment& segment) { return segment.length >= kLongStretchBytes; }

template <sp_float_format kFormat, typename Context>
DIGEST_THREAD void AddUnitsAs(const LaunchHead& head, const Segment& segment, uint64_t unit,
                              uint64_t count, Context& context, ThreadSums& sums) {
  if (IsLong(segment)) {
    AddLongUnits<kFormat>(head, segment, unit, count, context, sums);
  } else {
    AddShortUnits<kFormat>(segment, unit, count, context, sums);
  }
}

template <typename Context>
DIGEST_THREAD void AddUnitsOfFormat(const LaunchHead& head, const Segment& segment, uint64_t unit,
                                    uint64_t count, Context& context, ThreadSums& sums) {
  switch (segment.format) {
    case SP_F16:
      return AddUnitsAs<SP_F16>(head, segment, unit, count, context, sums);
    case SP_BF16:
      return AddUnitsAs<SP_BF16>(head, segment, unit, count, context, sums);
    case SP_F32:
      return AddUnitsAs<SP_F32>(head, segment, unit, count, context, sums);
    case SP_F64:
      return AddUnitsAs<SP_F64>(head, segment, unit, count, context, sums);
    case SP_F8_E4M3FN:
      return AddUnitsAs<SP_F8_E4M3FN>(head, segment, unit, count, context, sums);
    case SP_F8_E5M2:
      return AddUnitsAs<SP_F8_E5M2>(head, segment, unit, count, context, sums);
    default:
      return AddUnitsAs<SP_NO_FLOAT>(head, segment, unit, count, context, sums);
  }
}

template <typename Context>
DIGEST_THREAD void AddUnits(const LaunchHead& head, const Segment& segment, uint64_t unit,
                            uint64_t count, Context& context, ThreadSums& sums) {
  if (!IsLong(segment) && head.block_count > 0) {
    for (uint64_t i = 0; i < count; ++i) AddShortUnit(head, segment, unit + i, context, sums);
    return;
  }
  ThreadSums more;  // what is handed on by reference lies in memory: `sums` stays in registers
  AddUnitsOfFormat(head, segment, unit, count, context, more);
  AddSums(more, sums);
}

/// The segment that has the unit: the last that begins at or before it.
DIGEST_THREAD uint32_t SegmentOf(const Segment* segments, uint32_t count, uint64_t unit) {
  uint32_t low = 0;
  while (count - low > 1) {
    uint32_t middle = low + (count - low) / 2;
    if (segments[middle].first_unit <= unit) {
      low = middle;
    } else {
      count = middle;
    }
  }
  return low;
}

/// All that one thread does in a launch.
template <typename Context>
DIGEST_THREAD void RunThread(const LaunchHead& head, const Segment* segments, Context& context) {
  const uint64_t per_block = head.unit_count / context.BlocksOfThreads();
  const uint64_t more = head.unit_count % context.BlocksOfThreads();
  const uint64_t number = context.BlockOfThreads();
  uint64_t unit = number * per_block + Least(number, more);
  const uint64_t end = unit + per_block + (number < more);
  if (unit >= end) return;
  uint32_t index = SegmentOf(segments, head.segment_count, unit);
  ThreadSums sums;
  while (true) {
    const Segment& segment = segments[index];
    const bool is_last = index + 1 == head.segment_count;
    const uint64_t next = is_last ? end : Least(end, segments[index + 1].first_unit);
    AddUnits(head, segment, unit - segment.first_unit, next - unit, context, sums);
    unit = next;
    const bool is_done = unit == end;
    if (is_done || segments[index + 1].row != segment.row) {
      context.Flush(segment.row, sums);
      sums = ThreadSums();
    }
    if (is_done) return;
    ++index;
  }
}

}  // namespace shardproof::digest_internal
