// Walks runs, stretches and blocks, and leaves the arithmetic to `Part`. Included once by each
// kernel's file, in its own anonymous namespace, after these are defined there:
//   DIGEST_TARGET            the function attribute that selects the instruction set
//   kGroupBlocks             how many whole blocks PartGroup takes at once
//   PartGroup<kFormat>       sums of kGroupBlocks whole blocks, one PartSums each
//   Part<kFormat>            sums of bytes [begin, end) of one block
//   CountPart<kFormat>       exact NaN and Inf counts of whole elements
//   IsSuspectBlock<kFormat>  whether kBlockBytes of whole elements may have any
// No #pragma once: a second inclusion in one file is an error worth seeing.

DIGEST_TARGET inline void AddBlock(const PartSums& sums, uint64_t block, sp_summary& summary) {
  summary.digest.lane[0] += sums.lane[0] * Factor(0, block);
  summary.digest.lane[1] += sums.lane[1] * Factor(1, block);
}

/// data points at byte `begin` of the block. Only whole elements within [begin, end) count: blocks
/// are a multiple of every element size, so an element cut here is cut by its stretch.
template <sp_float_format kFormat>
DIGEST_TARGET void CountWholeElements(const uint8_t* data, uint32_t begin, uint32_t end,
                                      sp_summary& summary) {
  constexpr uint32_t kSize = sizeof(typename Element<kFormat>::Bits);
  uint32_t first = (begin + kSize - 1) / kSize * kSize;
  uint32_t last = end / kSize * kSize;
  if (first < last) CountPart<kFormat>(data + (first - begin), last - first, summary);
}

template <sp_float_format kFormat>
DIGEST_TARGET void DigestGroup(const uint8_t* data, uint64_t first_block, sp_summary& summary) {
  PartSums sums[kGroupBlocks];
  bool is_suspect = PartGroup<kFormat>(data, sums);
  for (uint32_t i = 0; i < kGroupBlocks; ++i) AddBlock(sums[i], first_block + i, summary);
  if (kFormat != SP_NO_FLOAT && is_suspect) [[unlikely]] {
    CountPart<kFormat>(data, kGroupBlocks * kBlockBytes, summary);
  }
}

template <sp_float_format kFormat>
DIGEST_TARGET void DigestStretch(const uint8_t* data, uint64_t start, uint64_t length,
                                 sp_summary& summary) {
  while (length > 0) {
    uint64_t block = start / kBlockBytes;
    uint32_t begin = start % kBlockBytes;
    uint64_t step;
    if (begin == 0 && length >= kGroupBlocks * kBlockBytes) {
      step = kGroupBlocks * kBlockBytes;
      DigestGroup<kFormat>(data, block, summary);
    } else {
      step = length < kBlockBytes - begin ? length : kBlockBytes - begin;
      uint32_t end = begin + static_cast<uint32_t>(step);
      PartSums sums = Part<kFormat>(data, begin, end);
      AddBlock(sums, block, summary);
      if (kFormat != SP_NO_FLOAT && sums.is_suspect) [[unlikely]] {
        CountWholeElements<kFormat>(data, begin, end, summary);
      }
    }
    data += step;
    start += step;
    length -= step;
  }
}

template <sp_float_format kFormat>
DIGEST_TARGET void DigestRuns(sp_summary* summary, const sp_run* runs, size_t run_count) {
  sp_summary sum = *summary;
  for (size_t r = 0; r < run_count; ++r) {
    const sp_run& run = runs[r];
    if (run.length == 0) continue;
    const uint8_t* data = static_cast<const uint8_t*>(run.data);
    for (uint64_t i = 0; i < run.count; ++i) {
      DigestStretch<kFormat>(data + static_cast<int64_t>(i) * run.data_stride,
                             run.global_start + i * run.global_stride, run.length, sum);
    }
  }
  *summary = sum;
}

template <sp_float_format kFormat>
DIGEST_TARGET void CountAll(sp_summary* summary, const uint8_t* data, uint64_t length) {
  constexpr uint32_t kSize = sizeof(typename Element<kFormat>::Bits);
  if (kFormat == SP_NO_FLOAT) return;
  for (; length >= kBlockBytes; data += kBlockBytes, length -= kBlockBytes) {
    if (IsSuspectBlock<kFormat>(data)) [[unlikely]] {
      CountPart<kFormat>(data, kBlockBytes, *summary);
    }
  }
  CountPart<kFormat>(data, static_cast<uint32_t>(length / kSize * kSize), *summary);
}

#define DIGEST_KERNEL(name)                                                         \
  {                                                                                 \
    name, {DigestRuns<SP_NO_FLOAT>, DigestRuns<SP_F16>, DigestRuns<SP_BF16>,        \
           DigestRuns<SP_F32>,      DigestRuns<SP_F64>, DigestRuns<SP_F8_E4M3FN>,   \
           DigestRuns<SP_F8_E5M2>},                                                 \
    {                                                                               \
      CountAll<SP_NO_FLOAT>, CountAll<SP_F16>, CountAll<SP_BF16>, CountAll<SP_F32>, \
          CountAll<SP_F64>, CountAll<SP_F8_E4M3FN>, CountAll<SP_F8_E5M2>            \
    }                                                                               \
  }
