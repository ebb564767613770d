#include "verify/oracle/derived.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "verify/oracle/oracle.h"

namespace shardproof::oracle {
namespace {

using ::testing::HasSubstr;

DerivedExpectation Derive(const RopeCase& rope, int64_t count) {
  const auto derived = DeriveFrequencies(rope, count);
  EXPECT_TRUE(derived.ok()) << derived.error().message;
  return derived.ok() ? derived.value() : DerivedExpectation{};
}

/// The largest distance from what Transformers 5.23 computes on a CPU with torch 2.15.
int64_t Farthest(const DerivedExpectation& ours, const std::vector<uint32_t>& library) {
  EXPECT_EQ(ours.values.size(), library.size());
  int64_t farthest = 0;
  for (size_t i = 0; i < std::min(ours.values.size(), library.size()); ++i) {
    const int64_t mine = std::bit_cast<uint32_t>(ours.values[i]);
    farthest = std::max(farthest, std::abs(mine - int64_t{library[i]}));
  }
  return farthest;
}

// torch.pow and a division on a CPU, torch 2.15: within the bound, mostly the same bits.
TEST(DefaultInverseFrequencies, AreWithinTheBoundOfTorch) {
  EXPECT_EQ(
      DefaultInverseFrequencies(10000, 8),
      std::vector<float>({std::bit_cast<float>(0x3f800000u), std::bit_cast<float>(0x3dcccccdu),
                          std::bit_cast<float>(0x3c23d70au), std::bit_cast<float>(0x3a83126fu)}));
  const uint32_t torch[] = {0x3f800000, 0x3f4e4bad, 0x3f263de0, 0x3f05f6ef,
                            0x3ed7e89b, 0x3eadfcff, 0x3e8c3504, 0x3e61f835};
  const std::vector<float> ours = DefaultInverseFrequencies(1e6, 128);
  ASSERT_EQ(ours.size(), 64u);
  for (size_t i = 0; i < std::size(torch); ++i) {
    EXPECT_NEAR(double(std::bit_cast<uint32_t>(ours[i])), double(torch[i]), 2) << i;
  }
}

TEST(DeriveFrequencies, EveryKindIsWithinItsBoundOfTransformers) {
  struct Known {
    RopeCase rope;
    std::vector<uint32_t> library;
  };
  const std::vector<Known> all = {
      {{.type = "linear", .factor = 3}, {0x3eaaaaab, 0x3d088889, 0x3b5a740d, 0x39aec33f}},
      {{.type = "yarn", .theta = 1e6, .factor = 4, .original_max_position_embeddings = 32768},
       {0x3f800000, 0x3ed7e89b, 0x3e361887, 0x3d99940d, 0x3d0186e3, 0x3c5a7bf2, 0x3b9ca0b8,
        0x3ad99312, 0x3a102de0, 0x3930df50, 0x383a7753, 0x379d43a4, 0x3704a2b2, 0x365fba4f,
        0x35bcb0c1, 0x351f23e4}},
      {{.type = "yarn",
        .theta = 150000,
        .factor = 32,
        .original_max_position_embeddings = 4096,
        .truncate = false},
       {0x3f800000, 0x3e66d3fa, 0x3d502194, 0x3bdea840, 0x39ef543c, 0x37989328, 0x3689928c,
        0x35781728}},
      {{.type = "llama3", .theta = 5e5, .factor = 8, .original_max_position_embeddings = 8192},
       {0x3f800000, 0x3ee177bc, 0x3e4693b0, 0x3daee4ad, 0x3d1a08c8, 0x3c87a9c3, 0x3beef74f,
        0x3b527720, 0x3a0995d2, 0x38a3418d, 0x380fc8f8, 0x377d45c3, 0x36df10c4, 0x36447610,
        0x35ad07a7, 0x351864a7}},
      {{.type = "longrope", .short_factor = {1, 1.1, 2.5, 40}},
       {0x3f800000, 0x3dba2e8c, 0x3b83126f, 0x37d1b717}},
      {{.type = "proportional", .theta = 1e6, .factor = 3, .rotated = 4},
       {0x3eaaaaab, 0x3d72cb5f, 0x3c2cb3d9, 0x3af5b0d0, 0, 0, 0, 0}}};
  for (const Known& known : all) {
    const DerivedExpectation ours = Derive(known.rope, static_cast<int64_t>(known.library.size()));
    EXPECT_LE(Farthest(ours, known.library), ours.ulp_max) << ours.formula;
    EXPECT_LE(ours.ulp_max, 5) << ours.formula;
  }
}

TEST(DeriveFrequencies, DynamicBeginsAsDefault) {
  EXPECT_EQ(Derive({.type = "dynamic", .theta = 777, .dim = 20}, 10).values,
            Derive({.theta = 777, .dim = 20}, 10).values);
}

TEST(DeriveFrequencies, TheBoundIsWhatWasDerivedByHand) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> theta(1.5, 1e7);
  std::uniform_real_distribution<double> factor(1, 64);
  int64_t widest = 0;
  for (int round = 0; round < 300; ++round) {
    const int64_t count = 1 + static_cast<int64_t>(random() % 128);
    RopeCase rope{.theta = theta(random)};
    EXPECT_LE(Derive(rope, count).ulp_max, 2);
    rope.factor = factor(random);
    rope.short_factor.assign(static_cast<size_t>(count), rope.factor);
    for (const char* type : {"linear", "longrope"}) {
      rope.type = type;
      widest = std::max(widest, Derive(rope, count).ulp_max);
    }
  }
  EXPECT_LE(widest, 5);
  EXPECT_GE(widest, 2);
}

TEST(DeriveFrequencies, TheBoundGrowsWhereTheFormulaSubtractsNearNumbers) {
  const RopeCase plain{
      .type = "llama3", .theta = 5e5, .factor = 8, .original_max_position_embeddings = 8192};
  RopeCase steep = plain;
  steep.high_freq_factor = 1.05;
  EXPECT_LT(Derive(plain, 64).ulp_max, 10);
  EXPECT_GT(Derive(steep, 2048).ulp_max, Derive(plain, 64).ulp_max);
}

TEST(DeriveFrequencies, TheFormulaIsForPeople) {
  EXPECT_EQ(Derive({}, 32).formula, "rope default, theta 10000, dim 64");
  EXPECT_EQ(Derive({.type = "linear", .dim = 63, .factor = 2}, 32).formula,
            "rope linear, theta 10000, dim 63, factor 2");
  EXPECT_EQ(
      Derive({.type = "yarn", .factor = 4, .original_max_position_embeddings = 99}, 32).formula,
      "rope yarn, theta 10000, dim 64, factor 4, beta 32 to 1, original context 99");
  EXPECT_EQ(Derive({.type = "proportional", .rotated = 3}, 32).formula,
            "rope proportional, theta 10000, dim 64, factor 1, 3 rotated");
}

TEST(DeriveFrequencies, RefusesWhatDoesNotFit) {
  const auto error = [](const RopeCase& rope, int64_t count) {
    const auto derived = DeriveFrequencies(rope, count);
    EXPECT_FALSE(derived.ok());
    if (derived.ok()) return std::string();
    EXPECT_EQ(derived.error().code, ErrorCode::kBadInput);
    EXPECT_EQ(derived.error().message.find('\n'), std::string::npos);
    return derived.error().message;
  };
  EXPECT_THAT(error({.type = "su"}, 4), HasSubstr("rope_type: expected default, linear"));
  EXPECT_THAT(error({.dim = 9}, 4), HasSubstr("expected another dim than 9 for 4 frequencies"));
  EXPECT_THAT(error({.theta = 0}, 4), HasSubstr("theta and factor above 0"));
  EXPECT_THAT(error({.type = "longrope", .short_factor = {1}}, 4), HasSubstr("factors than 1"));
  EXPECT_THAT(error({.type = "proportional", .rotated = 5}, 4), HasSubstr("than 5"));
  EXPECT_THAT(error({.type = "yarn"}, 4), HasSubstr("original_max_position_embeddings"));
  EXPECT_THAT(error({.type = "yarn", .dim = 7, .original_max_position_embeddings = 9}, 4),
              HasSubstr("an even dim"));
  EXPECT_THAT(
      error({.type = "llama3", .low_freq_factor = 4, .original_max_position_embeddings = 9}, 4),
      HasSubstr("that differ"));
  EXPECT_THAT(error({.theta = 1e-60}, 4),
              HasSubstr("expected numbers that F32 can hold, found 0 at frequency 1"));
  EXPECT_THAT(error({.type = "linear", .factor = 1e38}, 64),
              HasSubstr("expected numbers that F32 can hold"));
  EXPECT_TRUE(DefaultInverseFrequencies(1e-60, 8).empty());
}

}  // namespace
}  // namespace shardproof::oracle
