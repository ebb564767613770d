#include "verify/verdict/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace shardproof {
namespace {

using ::testing::HasSubstr;

std::string F32(const std::vector<float>& values) {
  std::string bytes(values.size() * 4, '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<float> Ramp(size_t count) {
  std::vector<float> values;
  for (size_t i = 0; i < count; ++i) values.push_back(1.0f + 0.001f * static_cast<float>(i));
  return values;
}

TEST(ExplainTest, NamesTheCause) {
  const std::vector<float> ramp = Ramp(12);
  const std::string right = F32(ramp);
  const std::vector<int64_t> shape = {4, 3};
  const auto explain = [&](const std::string& seen) {
    return Explain(right, seen, "F32", shape, 0).text;
  };

  EXPECT_EQ(explain(right), "");
  EXPECT_EQ(explain(std::string(48, '\xff')), "never written (poison)");
  std::string junk = "\xef\xbe\xed\x7f\xef\xbe\xed\x7f";
  EXPECT_EQ(explain(junk + junk + right.substr(16)), "never written (poison)");
  EXPECT_EQ(explain("\xef\xbe\xed\x7e" + right.substr(4)).find("never"), std::string::npos);
  EXPECT_THAT(explain(right.substr(0, 24) + std::string(24, '\0')), HasSubstr("zeros"));
  EXPECT_THAT(explain(std::string(48, '\1')), HasSubstr("nothing came from rank 0"));
  std::string flipped = right;
  flipped[17] ^= 8;
  EXPECT_EQ(explain(flipped), "one flipped bit: bit 11 of element 4");
  EXPECT_EQ(explain(right.substr(12, 12) + right.substr(0, 12) + right.substr(24)),
            "rows 0 and 1 swapped");
  EXPECT_EQ(explain(right.substr(0, 12) + right.substr(24, 24) + right.substr(36)),
            "shifted: rows 1 to 2 hold rows 2 to 3");
  EXPECT_EQ(explain(right.substr(0, 36) + right.substr(12, 12)), "rows moved: row 3 holds row 1");
  std::string swapped;
  for (size_t i = 0; i < 48; ++i) swapped += right[i / 4 * 4 + 3 - i % 4];
  EXPECT_THAT(explain(swapped), HasSubstr("endianness"));
  std::vector<float> transposed;
  for (size_t i = 0; i < 12; ++i) transposed.push_back(ramp[i % 4 * 3 + i / 4]);
  EXPECT_EQ(explain(F32(transposed)), "transposed");
  std::string truncated = right;
  for (size_t i = 0; i < 48; i += 4) truncated[i] = truncated[i + 1] = 0;
  EXPECT_EQ(explain(truncated), "truncated to BF16");
  EXPECT_THAT(Explain(right, right.substr(8) + right.substr(40), "F32", {12}, 0).text,
              HasSubstr("shifted"));
}

TEST(ExplainTest, TheCauseIsAWordWithoutSizes) {
  const std::string right = F32(Ramp(12));
  const auto cause = [&](const std::string& seen) {
    return Explain(right, seen, "F32", {4, 3}, 0).cause;
  };
  std::string flipped = right;
  flipped[17] ^= 8;
  EXPECT_EQ(cause(flipped), "flipped-bit");
  EXPECT_EQ(cause(std::string(48, '\xff')), "poison");
  EXPECT_EQ(cause(std::string(48, '\0')), "zeros");
  EXPECT_EQ(cause(right.substr(12, 12) + right.substr(0, 12) + right.substr(24)), "swapped");
  EXPECT_EQ(cause(right), "");
}

TEST(ExplainTest, NamesRounding) {
  EXPECT_EQ(Explain(F32({1.00390625f, 1.0078125f, 3.14159f}), F32({1.0f, 1.0078125f, 3.140625f}),
                    "F32", {3}, 0)
                .text,
            "rounded through BF16");
  EXPECT_EQ(Explain(F32({3.14159f, 1e30f}), F32({3.140625f, INFINITY}), "F32", {2}, 0).text,
            "rounded through F16");
}

TEST(ExplainTest, SaysNothingThatDoesNotAccountForAll) {
  EXPECT_EQ(Explain(F32({1, 2, 3, 4}), F32({9, 2, 7, 4}), "F32", {4}, 0).text, "");
}

}  // namespace
}  // namespace shardproof
