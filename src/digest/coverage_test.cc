// Coverage: what zeros would hide, shows.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "src/digest/digest.hpp"

namespace shardproof {
namespace {

Digest Covered(const std::vector<sp_run>& runs) {
  sp_digest coverage = {};
  sp_coverage_runs(&coverage, runs.data(), runs.size());
  return Digest(coverage);
}

sp_run Stretch(uint64_t begin, uint64_t end) { return {begin, end - begin, 1, 0, nullptr, 0}; }

TEST(Coverage, IsTheDigestOfAnImageOfOnes) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<uint8_t> ones(random() % 20000, 1);
    uint64_t start = random() % 9000;
    sp_run run = {start, ones.size(), 1, 0, ones.data(), 0};
    sp_summary summary = {};
    sp_digest_runs(&summary, &run, 1, SP_NO_FLOAT);
    ASSERT_EQ(Covered({Stretch(start, start + ones.size())}), Digest(summary.digest));
  }
}

TEST(Coverage, IsTheSameForAnyCutAtAnyByte) {
  const Digest whole = Covered({Stretch(3, 20000)});
  for (uint64_t cut = 3; cut <= 20000; cut += 1 + cut % 5) {
    ASSERT_EQ(Covered({Stretch(cut, 20000), Stretch(3, cut)}), whole) << "cut at " << cut;
  }
}

TEST(Coverage, OfColumnsSumsToThatOfTheMatrix) {
  Digest sum = Covered({{0, 256, 50, 700, nullptr, 0}, {256, 444, 50, 700, nullptr, 0}});
  EXPECT_EQ(sum, Covered({Stretch(0, 50 * 700)}));
}

TEST(Coverage, ShowsAGapAndAnOverlapOfEveryByteWhereTheDigestOfZerosDoesNot) {
  const uint64_t size = 10000;
  const Digest whole = Covered({Stretch(0, size)});
  for (uint64_t cut = 1; cut < size; ++cut) {
    ASSERT_NE(Covered({Stretch(0, cut - 1), Stretch(cut, size)}), whole) << "gap before " << cut;
    ASSERT_NE(Covered({Stretch(0, cut), Stretch(cut - 1, size)}), whole) << "twice before " << cut;
  }
  std::vector<uint8_t> zeros(size);
  sp_run gap = {0, size - 1, 1, 0, zeros.data(), 0};
  sp_summary summary = {};
  sp_digest_runs(&summary, &gap, 1, SP_NO_FLOAT);
  EXPECT_EQ(Digest(summary.digest), Digest());
}

TEST(Coverage, ShowsAShardClaimedTwiceInPlaceOfAnother) {
  const Digest whole = Covered({Stretch(0, 4 * 8192)});
  std::vector<sp_run> shards;
  for (uint64_t i = 0; i < 4; ++i) shards.push_back(Stretch(i * 8192, (i + 1) * 8192));
  EXPECT_EQ(Covered(shards), whole);
  shards[2] = shards[1];
  EXPECT_NE(Covered(shards), whole);
}

TEST(Coverage, AddsToWhatTheSumHolds) {
  sp_digest coverage = {{5, 6}};
  sp_run run = Stretch(10, 20);
  sp_coverage_runs(&coverage, &run, 1);
  EXPECT_EQ(Digest(coverage), Digest(5, 6) + Covered({run}));
  EXPECT_NE(Digest(coverage), Digest(5, 6));
}

}  // namespace
}  // namespace shardproof
