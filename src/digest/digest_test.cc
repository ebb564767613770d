// The digest's promises: any cut gives the same sum, any accident changes it, every kernel agrees.
#include "src/digest/digest.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "src/digest/digest_internal.h"

namespace shardproof {
namespace {

using digest_internal::DigestBlocks;
using digest_internal::Kernel;
using digest_internal::Kernels;
using Bytes = std::vector<uint8_t>;

std::vector<const Kernel*> AllKernels() { return {Kernels().begin(), Kernels().end()}; }

class DigestKernel : public testing::TestWithParam<const Kernel*> {
 protected:
  sp_summary Summary(const std::vector<sp_run>& runs, sp_float_format format = SP_NO_FLOAT) const {
    sp_summary summary = {};
    GetParam()->digest_runs[format](&summary, runs.data(), runs.size());
    return summary;
  }
  Digest Of(const std::vector<sp_run>& runs) const { return Digest(Summary(runs).digest); }
  Digest Of(const Bytes& image, uint64_t start = 0) const {
    return Of({sp_run{start, image.size(), 1, 0, image.data(), 0}});
  }
};

INSTANTIATE_TEST_SUITE_P(Every, DigestKernel, testing::ValuesIn(AllKernels()),
                         [](const auto& info) { return std::string(info.param->name); });

Bytes RandomBytes(std::mt19937_64& random, size_t size) {
  Bytes bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

/// Stretches of an image, each copied to memory of its own of exactly its size, so that a sanitizer
/// sees a read beside it. `shift` bytes of it are left before, to try every alignment.
class Pieces {
 public:
  void Add(const Bytes& image, uint64_t begin, uint64_t end, uint64_t image_start, size_t shift) {
    auto memory = std::make_unique<uint8_t[]>(shift + (end - begin));
    if (end > begin) std::memcpy(memory.get() + shift, &image[begin], end - begin);
    runs_.push_back({image_start + begin, end - begin, 1, 0, memory.get() + shift, 0});
    memory_.push_back(std::move(memory));
  }
  std::vector<sp_run>& Runs() { return runs_; }

 private:
  std::vector<sp_run> runs_;
  std::vector<std::unique_ptr<uint8_t[]>> memory_;
};

std::vector<uint64_t> RandomCuts(std::mt19937_64& random, uint64_t size) {
  std::vector<uint64_t> cuts = {0, size};
  for (uint64_t i = random() % 12; i > 0; --i) cuts.push_back(random() % (size + 1));
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

TEST_P(DigestKernel, IsTheSameForAnyCutAtAnyByte) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 400; ++round) {
    Bytes image = RandomBytes(random, 1 + random() % (round % 4 == 0 ? 40000 : 300));
    uint64_t start = random() % 10000;
    std::vector<uint64_t> cuts = RandomCuts(random, image.size());
    Pieces pieces;
    for (size_t i = 1; i < cuts.size(); ++i) {
      pieces.Add(image, cuts[i - 1], cuts[i], start, random() % 9);
    }
    std::shuffle(pieces.Runs().begin(), pieces.Runs().end(), random);
    ASSERT_EQ(Of(pieces.Runs()), Of(image, start)) << "round " << round;
  }
}

TEST_P(DigestKernel, AgreesWithThePortableKernelOnEveryBeginEndAndFormat) {
  std::mt19937_64 random(2);
  Bytes image = RandomBytes(random, 300);
  for (int format = SP_NO_FLOAT; format <= SP_F8_E5M2; ++format) {
    for (uint64_t begin = 0; begin < 70; ++begin) {
      for (uint64_t end = begin; end <= image.size(); end += 1 + end % 3) {
        Pieces piece;
        piece.Add(image, begin, end, 4000, begin % 7);
        sp_summary seen = Summary(piece.Runs(), static_cast<sp_float_format>(format));
        sp_summary expected = {};
        digest_internal::kPortableKernel.digest_runs[format](&expected, piece.Runs().data(), 1);
        ASSERT_EQ(Digest(seen.digest), Digest(expected.digest)) << begin << " to " << end;
        ASSERT_EQ(seen.nan_count, expected.nan_count) << begin << " to " << end;
        ASSERT_EQ(seen.inf_count, expected.inf_count) << begin << " to " << end;
      }
    }
  }
}

/// One page between two that may not be touched.
class GuardedPage {
 public:
  GuardedPage() : size_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    void* memory = mmap(nullptr, 3 * size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    base_ = static_cast<uint8_t*>(memory);
    if (mprotect(Begin(), size_, PROT_READ | PROT_WRITE) != 0) std::abort();
    std::memset(Begin(), 0x5a, size_);
  }
  GuardedPage(const GuardedPage&) = delete;
  GuardedPage& operator=(const GuardedPage&) = delete;
  ~GuardedPage() { munmap(base_, 3 * size_); }

  uint8_t* Begin() { return base_ + size_; }
  uint8_t* End() { return base_ + 2 * size_; }
  uint64_t Size() const { return size_; }

 private:
  size_t size_;
  uint8_t* base_;
};

TEST_P(DigestKernel, TouchesNoByteOutsideItsStretches) {
  GuardedPage page;
  for (uint64_t start = 0; start < 70; ++start) {
    for (uint64_t length : {uint64_t{1}, uint64_t{3}, uint64_t{31}, uint64_t{64}, uint64_t{130},
                            page.Size() - 5, page.Size()}) {
      Digest at_begin = Of({sp_run{start, length, 1, 0, page.Begin(), 0}});
      Digest at_end = Of({sp_run{start, length, 1, 0, page.End() - length, 0}});
      ASSERT_EQ(at_begin, at_end);
      ASSERT_EQ(at_begin, Of(Bytes(length, 0x5a), start));
    }
  }
}

TEST_P(DigestKernel, AddsToWhatTheSummaryHolds) {
  Bytes image = {1, 2, 3};
  sp_run run = {5, 3, 1, 0, image.data(), 0};
  sp_summary summary = {{{10, 20}}, 30, 40};
  GetParam()->digest_runs[SP_BF16](&summary, &run, 1);
  EXPECT_EQ(Digest(summary.digest), Digest(10, 20) + Of(image, 5));
  EXPECT_EQ(summary.nan_count, 30u);
  EXPECT_EQ(summary.inf_count, 40u);
}

TEST_P(DigestKernel, OfColumnShardsSumsToThatOfTheMatrix) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 60; ++round) {
    uint64_t rows = 1 + random() % 40, row_bytes = 1 + random() % 1500, start = random() % 9000;
    Bytes matrix = RandomBytes(random, rows * row_bytes);
    std::vector<uint64_t> cuts = RandomCuts(random, row_bytes);
    Digest sum;
    for (size_t i = 1; i < cuts.size(); ++i) {
      uint64_t width = cuts[i] - cuts[i - 1];
      Bytes shard;
      for (uint64_t row = 0; row < rows; ++row) {
        auto from = matrix.begin() + static_cast<int64_t>(row * row_bytes + cuts[i - 1]);
        shard.insert(shard.end(), from, from + static_cast<int64_t>(width));
      }
      sum += Of({sp_run{start + cuts[i - 1], width, rows, row_bytes, shard.data(),
                        static_cast<int64_t>(width)}});
    }
    ASSERT_EQ(sum, Of(matrix, start)) << "round " << round;
  }
}

TEST_P(DigestKernel, ReadsStretchesAtNegativeAndOverlappingDataStrides) {
  Bytes rows = {1, 2, 3, 4, 5, 6};
  Bytes reversed = {5, 6, 3, 4, 1, 2};
  Bytes repeated = {5, 6, 5, 6, 5, 6};
  EXPECT_EQ(Of({sp_run{9, 2, 3, 2, &rows[4], -2}}), Of(reversed, 9));
  EXPECT_EQ(Of({sp_run{9, 2, 3, 2, &rows[4], 0}}), Of(repeated, 9));
}

TEST_P(DigestKernel, OfGridBlocksDoesNotDependOnTheCutAndSumsToTheTotal) {
  std::mt19937_64 random(4);
  Bytes image = RandomBytes(random, 50000);
  const uint64_t start = 4096 * 3 + 77;
  for (uint64_t block_bytes : {4096u, 12288u, 1u << 20}) {
    std::vector<sp_digest> expected(20), seen(20);
    for (uint64_t i = 0; i < image.size(); ++i) {
      Digest byte = Of(Bytes{image[i]}, start + i);
      sp_digest& block = expected[(start + i) / block_bytes];
      block.lane[0] += byte.lane0;
      block.lane[1] += byte.lane1;
    }
    std::vector<uint64_t> cuts = RandomCuts(random, image.size());
    Pieces pieces;
    for (size_t i = 1; i < cuts.size(); ++i) pieces.Add(image, cuts[i - 1], cuts[i], start, 1);
    sp_summary summary = {};
    DigestBlocks(*GetParam(), &summary, seen.data(), 0, seen.size(), block_bytes,
                 pieces.Runs().data(), pieces.Runs().size(), SP_NO_FLOAT);
    EXPECT_EQ(Digest(summary.digest), Of(image, start));
    Digest sum;
    for (size_t i = 0; i < seen.size(); ++i) {
      EXPECT_EQ(Digest(seen[i]), Digest(expected[i])) << "block " << i << " of " << block_bytes;
      sum += Digest(seen[i]);
    }
    EXPECT_EQ(sum, Of(image, start));
  }
}

TEST_P(DigestKernel, OfGridBlocksOutsideTheRangeGoesToTheSummaryOnly) {
  Bytes image(5 * 4096, 7);
  sp_digest guarded[4] = {};
  sp_summary summary = {};
  sp_run run = {0, image.size(), 1, 0, image.data(), 0};
  DigestBlocks(*GetParam(), &summary, guarded + 1, 2, 2, 4096, &run, 1, SP_NO_FLOAT);
  EXPECT_EQ(Digest(summary.digest), Of(image));
  EXPECT_EQ(Digest(guarded[0]), Digest());
  EXPECT_EQ(Digest(guarded[1]), Of(Bytes(4096, 7), 2 * 4096));
  EXPECT_EQ(Digest(guarded[2]), Of(Bytes(4096, 7), 3 * 4096));
  EXPECT_EQ(Digest(guarded[3]), Digest());
}

TEST_P(DigestKernel, ChangesInBothLanesWithEverySingleBit) {
  std::mt19937_64 random(5);
  Bytes image = RandomBytes(random, 9000);
  const Digest whole = Of(image, 2);
  for (size_t bit = 0; bit < 8 * image.size(); bit += 1 + random() % 40) {
    image[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    Digest flipped = Of(image, 2);
    image[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    ASSERT_NE(flipped.lane0, whole.lane0) << "bit " << bit;
    ASSERT_NE(flipped.lane1, whole.lane1) << "bit " << bit;
  }
}

void ExpectSwapsSeen(const std::function<Digest(const Bytes&)>& digest, size_t unit_bytes) {
  std::mt19937_64 random(unit_bytes);
  Bytes image = RandomBytes(random, std::max<size_t>(20000, 4 * unit_bytes));
  const Digest whole = digest(image);
  size_t unit_count = image.size() / unit_bytes;
  for (int round = 0; round < 60; ++round) {
    uint8_t* a = &image[random() % unit_count * unit_bytes];
    uint8_t* b = &image[random() % unit_count * unit_bytes];
    if (std::equal(a, a + unit_bytes, b)) continue;
    std::swap_ranges(a, a + unit_bytes, b);
    ASSERT_NE(digest(image), whole) << "units of " << unit_bytes;
    std::swap_ranges(a, a + unit_bytes, b);
  }
}

TEST_P(DigestKernel, ChangesWhenElementsRowsOrShardsSwap) {
  auto digest = [this](const Bytes& image) { return Of(image); };
  for (size_t unit_bytes : {1, 2, 4, 8, 100, 256, 4096, 8192}) ExpectSwapsSeen(digest, unit_bytes);
}

TEST_P(DigestKernel, ChangesWithANaNsPayloadAndTheSignOfZero) {
  auto of_floats = [this](std::vector<uint32_t> bits) {
    return Of({sp_run{0, 4 * bits.size(), 1, 0, bits.data(), 0}});
  };
  EXPECT_NE(of_floats({0x7fc00000, 1}), of_floats({0x7fc00001, 1}));
  EXPECT_NE(of_floats({0x7fc00000, 1}), of_floats({0xffc00000, 1}));
  EXPECT_NE(of_floats({0x00000000, 1}), of_floats({0x80000000, 1}));
}

TEST_P(DigestKernel, OfAnEmptySetIsZero) {
  EXPECT_EQ(Of(std::vector<sp_run>{}), Digest());
  EXPECT_EQ(Of({sp_run{3, 0, 5, 8, nullptr, 8}}), Digest());
  EXPECT_EQ(Of({sp_run{3, 5, 0, 8, nullptr, 8}}), Digest());
}

TEST(Digest, UsesTheFastestKernelThatThisMachineRuns) {
  EXPECT_STREQ(sp_digest_kernel(), Kernels().front()->name);
  EXPECT_STREQ(Kernels().back()->name, "portable");
  Bytes image(10000, 3);
  sp_run run = {1, image.size(), 1, 0, image.data(), 0};
  sp_summary seen = {}, expected = {}, by_block = {};
  sp_digest block = {};
  sp_digest_runs(&seen, &run, 1, SP_F16);
  sp_digest_blocks(&by_block, &block, 1, 1, 4096, &run, 1, SP_F16);
  Kernels().back()->digest_runs[SP_F16](&expected, &run, 1);
  EXPECT_EQ(Digest(seen.digest), Digest(expected.digest));
  EXPECT_EQ(Digest(by_block.digest), Digest(expected.digest));
  EXPECT_NE(Digest(block), Digest());
}

}  // namespace
}  // namespace shardproof
