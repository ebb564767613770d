#include "src/pattern/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardproof {
namespace {

using ::testing::HasSubstr;

bool Fits(const std::string& pattern, const std::string& name) {
  return Pattern::Of(pattern).value().Fits(name).value();
}

TEST(Pattern, FitsWholeNamesOnly) {
  EXPECT_TRUE(Fits("q_proj", "q_proj"));
  EXPECT_FALSE(Fits("q_proj", "self_attn.q_proj"));
  EXPECT_FALSE(Fits("q_proj", "q_proj.base"));
  EXPECT_TRUE(Fits(R"(.*\.(q|v)_proj)", "model.layers.0.self_attn.v_proj"));
  EXPECT_TRUE(Fits("a|ab", "ab"));
  EXPECT_FALSE(Fits("", "a"));
}

TEST(Pattern, KnowsWhatPythonKnows) {
  const std::string text_only = R"(^(?!.*visual).*(?:(?P<side>gate|up)_proj)$)";
  EXPECT_TRUE(Fits(text_only, "model.language_model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(Fits(text_only, "model.visual.blocks.0.mlp.up_proj"));
  EXPECT_TRUE(Fits(R"((\w+)\.\1)", "a1.a1"));
  EXPECT_TRUE(Fits(R"(.*(?<=layers\.)\d+)", "model.layers.12"));
}

TEST(Pattern, WhatPythonReadsOtherwiseIsReadAsPythonDoes) {
  EXPECT_TRUE(Fits(R"(layers\.\d{,2}\.q)", "layers.12.q"));
  EXPECT_FALSE(Fits(R"(layers\.\d{,2}\.q)", "layers.123.q"));
  EXPECT_TRUE(Fits("a{,}", "aaa"));
  EXPECT_TRUE(Fits("[{,2}]+", "{,2}"));
  EXPECT_TRUE(Fits(R"(\{,2})", "{,2}"));
  EXPECT_TRUE(Fits("[]a]+", "a]"));
  EXPECT_TRUE(Fits("[^]a]+", "bc"));
  EXPECT_TRUE(Fits("[a[]b{,2}", "[bb"));
  EXPECT_TRUE(Fits("(?i)Q_PROJ", "q_proj"));
  for (const char* other : {R"(\z)", R"(\K)", R"(\Q.\E)", R"(\p{L})", "(?<n>a)", "(?|a)", "(?R)",
                            "(*UTF)a", "[[:alpha:]]", "a(?i)b", "(?C1)a"}) {
    EXPECT_FALSE(Pattern::Of(other).ok()) << other;
  }
}

TEST(Pattern, WhatCannotBeIsSaid) {
  std::string groups;
  for (int i = 0; i < 101; ++i) groups += "()";
  EXPECT_THAT(Pattern::Of(groups).error().message, HasSubstr("101 groups"));
  EXPECT_THAT(Pattern::Of("(q|v").error().message, HasSubstr("after 4 characters"));
  EXPECT_THAT(Pattern::Of("*").error().message, HasSubstr("no pattern"));
  EXPECT_FALSE(Pattern::Of(std::string(1 << 15, 'a')).ok());
  EXPECT_FALSE(Pattern::Of(std::string(10000, '(')).ok());
  const auto endless = Pattern::Of("(a*)*b").value().Fits(std::string(60, 'a') + "c");
  EXPECT_TRUE(!endless.ok() || !endless.value());
  const auto slow = Pattern::Of("(?:(?:a|aa)+)+b").value().Fits(std::string(80, 'a') + "c");
  ASSERT_FALSE(slow.ok() && slow.value());
}

}  // namespace
}  // namespace shardproof
