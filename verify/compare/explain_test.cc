#include "verify/compare/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <numeric>

#include "verify/oracle/digest_scalar.h"
#include "verify/oracle/fixture_files.h"

namespace shardproof::compare {
namespace {

using oracle::BytesOf;
using ::testing::StartsWith;

std::string Bytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

/// Values of no pattern: sign and exponent vary too.
std::vector<float> Noise(size_t count, uint64_t stream = 0) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t draw = oracle::Mix(stream * 1000003 + i);
    values.push_back(static_cast<float>(static_cast<int64_t>(draw) >> 30) * 0x1p-34f);
  }
  return values;
}

std::string ExplainFloats(const std::vector<float>& expected, const std::vector<float>& seen,
                          std::vector<int64_t> shape) {
  return Explain({Bytes(expected), Bytes(seen), "F32", std::move(shape), 0});
}

TEST(Explain, SaysNothingWhereThereIsNothingToSay) {
  EXPECT_EQ(ExplainFloats({1, 2}, {1, 2}, {2}), "");
  EXPECT_EQ(Explain({"abcd", "abce", "F99", {4}, 0}), "");
  EXPECT_EQ(Explain({"abcd", "abc", "U8", {4}, 0}), "");
  EXPECT_EQ(Explain({"abc", "abd", "F32", {1}, 0}), "");
  EXPECT_EQ(Explain({"", "", "F32", {0}, 0}), "");
}

TEST(Explain, AllZeros) {
  EXPECT_THAT(ExplainFloats(Noise(8), std::vector<float>(8), {8}), StartsWith("all zeros"));
  EXPECT_THAT(ExplainFloats(std::vector<float>(8), Noise(8), {8}),
              StartsWith("the expected side is all zeros"));
}

TEST(Explain, ZeroStretch) {
  std::vector<float> seen = Noise(32);
  std::fill(seen.begin() + 8, seen.begin() + 20, 0.0f);
  EXPECT_EQ(ExplainFloats(Noise(32), seen, {32}),
            "zeros in elements 8 to 19, one contiguous stretch; equal elsewhere");
}

TEST(Explain, NeverWritten) {
  std::string seen = Bytes(Noise(32));
  const std::string expected = seen;
  std::memset(seen.data() + 64, 0xff, 64);
  EXPECT_EQ(
      Explain({expected, seen, "F32", {32}, 0}),
      "never written: the poison pattern 0xff fills elements 16 to 31, one contiguous stretch");
  EXPECT_EQ(Explain({expected, std::string(128, '\xff'), "F32", {32}, 0}),
            "never written: the poison pattern 0xff fills all of it");
}

TEST(Explain, FlippedBit) {
  std::string seen = Bytes(Noise(32));
  const std::string expected = seen;
  seen[4 * 7 + 3] ^= 0x40;
  EXPECT_EQ(Explain({expected, seen, "F32", {32}, 0}), "bit 30 of element 7 is flipped");
  seen[4 * 9 + 3] ^= 0x40;
  EXPECT_THAT(Explain({expected, seen, "F32", {32}, 0}), StartsWith("bit 30 is flipped in 2"));
  seen[4 * 9] ^= 0x40;
  EXPECT_THAT(Explain({expected, seen, "F32", {32}, 0}), StartsWith("no simple pattern"));
}

TEST(Explain, ByteSwapped) {
  const std::string expected = Bytes(Noise(16));
  std::string seen = expected;
  for (size_t i = 0; i < seen.size(); i += 4) std::reverse(&seen[i], &seen[i] + 4);
  EXPECT_THAT(Explain({expected, seen, "F32", {16}, 0}), StartsWith("byte-swapped: the 4 bytes"));
}

TEST(Explain, RoundedThroughNarrowFormats) {
  const std::vector<float> expected = Noise(64);
  for (const char* name : {"BF16", "F16", "F8_E4M3", "F8_E5M2"}) {
    const oracle::FloatFormat& format = oracle::FindDtype(name)->format;
    std::vector<float> seen;
    for (const float value : expected) {
      seen.push_back(
          static_cast<float>(oracle::DecodeFloat(format, oracle::EncodeFloat(format, value))));
    }
    EXPECT_THAT(ExplainFloats(expected, seen, {64}),
                StartsWith(std::string("rounded through ") + name));
  }
  std::vector<float> truncated;
  for (const float value : expected) {
    truncated.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xffff0000));
  }
  EXPECT_THAT(ExplainFloats(expected, truncated, {64}), StartsWith("truncated to BF16"));
  truncated[5] = 3;
  EXPECT_THAT(ExplainFloats(expected, truncated, {64}), StartsWith("no simple pattern"));
}

TEST(Explain, CutOffAndInverted) {
  std::vector<float> expected = Noise(64), seen;
  for (const float value : expected) seen.push_back(1 / value);
  EXPECT_THAT(ExplainFloats(expected, seen, {64}),
              StartsWith("every element is 1 divided by the expected one"));
  std::string rounded, cut;
  for (int i = 0; i < 64; ++i) {
    const auto bits = static_cast<uint16_t>(0x3f81 + 5 * i);
    rounded += BytesOf<uint16_t>({bits});
    cut += BytesOf<uint16_t>({static_cast<uint16_t>(bits - (i % 3 == 0))});
  }
  EXPECT_THAT(Explain({rounded, cut, "BF16", {64}, 0}),
              StartsWith("cut off, not rounded: 22 elements"));
}

TEST(Explain, TheExpectedOneMayBeWrong) {
  const std::vector<float> right = Noise(64);
  std::vector<float> rounded, cut = right;
  for (const float value : right)
    rounded.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(value) & 0xffff0000));
  std::fill(cut.begin() + 40, cut.end(), 0.0f);
  EXPECT_THAT(ExplainFloats(rounded, right, {64}),
              StartsWith("the expected values may be the wrong ones: truncated"));
  EXPECT_THAT(ExplainFloats(cut, right, {64}),
              StartsWith("the expected values may be the wrong ones: zeros in"));
}

TEST(Explain, Transposed) {
  const std::vector<float> expected = Noise(24);
  std::vector<float> seen(24);
  for (int r = 0; r < 4; ++r) {
    for (int c = 0; c < 6; ++c) seen[c * 4 + r] = expected[r * 6 + c];
  }
  EXPECT_THAT(ExplainFloats(expected, seen, {4, 6}), StartsWith("transposed"));
  EXPECT_THAT(ExplainFloats(expected, seen, {1, 4, 6}), StartsWith("transposed"));
  std::swap(seen[1], seen[2]);
  EXPECT_THAT(ExplainFloats(expected, seen, {4, 6}), StartsWith("no simple pattern"));
}

TEST(Explain, RowsSwappedAndPermuted) {
  const std::vector<float> expected = Noise(40);
  std::vector<float> seen = expected;
  std::swap_ranges(seen.begin() + 8, seen.begin() + 12, seen.begin() + 24);
  EXPECT_EQ(ExplainFloats(expected, seen, {10, 4}), "rows 2 and 6 are swapped");
  EXPECT_EQ(ExplainFloats(expected, seen, {10, 2, 2}), "rows 2 and 6 are swapped");
  std::rotate(seen.begin(), seen.begin() + 20, seen.end());
  EXPECT_THAT(
      ExplainFloats(expected, seen, {10, 4}),
      StartsWith("rows permuted: 10 rows hold the values of other rows, the first is row 0, "
                 "which holds row 5"));
  seen = expected;
  std::copy(seen.begin() + 12, seen.begin() + 16, seen.begin() + 4);
  EXPECT_EQ(ExplainFloats(expected, seen, {10, 4}), "row 1 holds the values of row 3");
}

TEST(Explain, ElementsSwapped) {
  std::vector<float> seen = Noise(20);
  std::swap(seen[3], seen[11]);
  EXPECT_EQ(ExplainFloats(Noise(20), seen, {20}), "elements 3 and 11 are swapped");
}

TEST(Explain, Shifted) {
  const std::vector<float> expected = Noise(100);
  std::vector<float> seen = Noise(100, 1);
  std::copy(expected.begin(), expected.end() - 3, seen.begin() + 3);
  EXPECT_EQ(ExplainFloats(expected, seen, {100}),
            "shifted by 3 elements to the back, from element 0 on");
  std::copy(expected.begin(), expected.begin() + 10, seen.begin());
  std::copy(expected.begin() + 15, expected.end(), seen.begin() + 10);
  EXPECT_EQ(ExplainFloats(expected, seen, {100}),
            "shifted by 5 elements to the front, from element 10 on");
}

TEST(Explain, StretchFromElsewhereOrStale) {
  const std::vector<float> expected = Noise(100);
  std::vector<float> seen = expected;
  std::copy(expected.begin() + 5, expected.begin() + 25, seen.begin() + 60);
  EXPECT_EQ(ExplainFloats(expected, seen, {100}),
            "elements 60 to 79 hold the values of elements 5 to 24");
  const std::vector<float> stale = Noise(100, 2);
  std::copy(stale.begin() + 60, stale.begin() + 80, seen.begin() + 60);
  EXPECT_EQ(ExplainFloats(expected, seen, {100}),
            "one contiguous stretch, elements 60 to 79, differs and all else is equal: it is "
            "stale or was overwritten");
}

TEST(Explain, NoSimplePatternNamesTheLargestDifference) {
  EXPECT_EQ(ExplainFloats({1, 2, 3, 4}, {1, 5, 3, 4.5}, {4}),
            "no simple pattern: 2 elements differ, largest |difference| 3");
  EXPECT_EQ(ExplainFloats({1, 2, 3, 4}, {1, 5, std::nanf(""), 4.5}, {4}),
            "no simple pattern: 3 elements differ, largest |difference| 3, 1 of them with a NaN or "
            "Inf");
  EXPECT_EQ(Explain({BytesOf<int8_t>({-100, 0, 3}), BytesOf<int8_t>({100, 7, 3}), "I8", {3}, 0}),
            "no simple pattern: 2 elements differ, largest |difference| 200");
}

TEST(Explain, AWindowIsNamedAndCountedInTheWholeTensor) {
  std::vector<float> seen = Noise(40);
  std::swap_ranges(seen.begin() + 8, seen.begin() + 12, seen.begin() + 24);
  const std::string text = Explain({Bytes(Noise(40)), Bytes(seen), "F32", {1000, 4}, 400});
  EXPECT_EQ(text, "rows 102 and 106 are swapped (judged by elements 400 to 439)");
}

}  // namespace
}  // namespace shardproof::compare
