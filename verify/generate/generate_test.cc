#include "verify/generate/generate.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "verify/case/case_json.h"
#include "verify/generate/features.h"

namespace shardproof {
namespace {

constexpr uint64_t kCases = 3000;

TEST(GenerateCase, GivesValidCasesThatTheirJsonKeeps) {
  for (uint64_t i = 0; i < kCases; ++i) {
    const nlohmann::json json = CaseToJson(GenerateCase({}, 5, i));
    const auto parsed = ParseCase(json);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message << "\n" << json.dump(1);
    EXPECT_EQ(CaseToJson(parsed.value()), json);
  }
}

TEST(GenerateCase, IsAFunctionOfSeedAndIndex) {
  const auto text = [](uint64_t seed, uint64_t index) {
    return CaseToJson(GenerateCase({}, seed, index)).dump();
  };
  EXPECT_EQ(text(1, 2), text(1, 2));
  EXPECT_NE(text(1, 2), text(1, 3));
  EXPECT_NE(text(1, 2), text(2, 2));
}

TEST(GenerateCase, HasEveryFeatureSomewhere) {
  std::set<std::string> seen;
  for (uint64_t i = 0; i < kCases; ++i) {
    for (const std::string& feature : FeaturesOf(GenerateCase({}, 9, i))) seen.insert(feature);
  }
  const std::set<std::string> left_out = {"device.cuda"};  // not every machine has one
  for (const std::string& feature : KnownFeatures()) {
    EXPECT_TRUE(seen.contains(feature) != left_out.contains(feature)) << feature;
  }
}

TEST(GenerateCase, KeepsTheNumberOfRanksAskedFor) {
  for (uint64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(GenerateCase({.world = 4}, 3, i).WorldSize(), 4);
    EXPECT_LE(GenerateCase({.world_max = 5}, 3, i).WorldSize(), 5);
  }
}

}  // namespace
}  // namespace shardproof
