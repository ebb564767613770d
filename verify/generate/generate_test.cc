#include "verify/generate/generate.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "verify/case/case_json.h"
#include "verify/case/fixture_fields.h"
#include "verify/generate/draw_by_hand.h"
#include "verify/generate/features.h"

namespace shardproof {
namespace {

constexpr uint64_t kCases = 3000;

using Certain = FaultDraw::Certain;
using Anywhere = FaultDraw::Anywhere;

/// Faults drawn in every way.
const GenerateOptions& WithFaults() {
  static const GenerateOptions options = {
      .faults = {
          {"rank/kill", {.certain = Certain::kEarlyStage, .anywhere = Anywhere::kCollective}},
          {"file/eio", {.certain = Certain::kFirstCall, .anywhere = Anywhere::kCall}},
          {"comm/drop",
           {.anywhere = Anywhere::kCall, .needs_others = true, .only_simulated = true}},
          {"memory/new", {.certain = Certain::kAllocation, .needs_processes = true}}}};
  return options;
}

TEST(GenerateCase, GivesValidCasesThatTheirJsonKeeps) {
  for (uint64_t i = 0; i < kCases; ++i) {
    const nlohmann::json json = CaseToJson(GenerateCase(WithFaults(), 5, i));
    const auto parsed = ParseCase(json);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message << "\n" << json.dump(1);
    EXPECT_EQ(CaseToJson(parsed.value()), json);
  }
}

TEST(GenerateCase, IsAFunctionOfSeedAndIndex) {
  const auto text = [](uint64_t seed, uint64_t index) {
    return CaseToJson(GenerateCase(WithFaults(), seed, index)).dump();
  };
  EXPECT_EQ(text(1, 2), text(1, 2));
  EXPECT_NE(text(1, 2), text(1, 3));
  EXPECT_NE(text(1, 2), text(2, 2));
}

TEST(GenerateCase, HasEveryFeatureSomewhere) {
  std::set<std::string> seen;
  for (uint64_t i = 0; i < kCases; ++i) {
    for (const std::string& feature : FeaturesOf(GenerateCase(WithFaults(), 9, i)))
      seen.insert(feature);
  }
  const std::set<std::string> left_out = {"device.cuda"};  // not every machine has one
  for (const std::string& feature : KnownFeatures()) {
    EXPECT_TRUE(seen.contains(feature) != left_out.contains(feature)) << feature;
  }
}

TEST(GenerateCase, GivesEveryRowThatIsDrawnAnotherValueAndCountsIt) {
  std::set<std::string> drawn, counted;
  for (uint64_t i = 0; i < kCases; ++i) {
    Case made = GenerateCase(WithFaults(), 9, i);
    const auto features = FeaturesOf(made);
    for (const FieldOfCase& field : FieldsOf(made)) {
      if (IsUsual(field)) continue;
      drawn.insert(field.path);
      if (counted.contains(field.path)) continue;
      Case without = made;
      SetToDefault(FieldAt(without, field.path));
      if (FeaturesOf(without) != features) counted.insert(field.path);
    }
  }
  // What a job and a model are made of is counted; these say where they come from.
  const std::set<std::string> no_feature = {"transport", "seed", "subject"};
  GenerateOptions of_subject = {.subject = "subject.py"};
  Case other = GenerateCase(of_subject, 9, 0);
  if (!IsUsual(FieldAt(other, "subject"))) drawn.insert("subject");
  for (const FieldOfCase& field : FieldsOf(other)) {
    if (field.row->draw.how == FieldDraw::How::kNever) continue;
    EXPECT_TRUE(drawn.contains(field.path)) << field.path;
    EXPECT_TRUE(counted.contains(field.path) != no_feature.contains(field.path)) << field.path;
  }
}

TEST(GenerateCase, HasAFunctionForEachRowThatIsDrawnByHandAndNoOther) {
  std::set<std::string> rows, functions;
  Case c;
  for (const FieldOfCase& field : FieldsOf(c)) {
    if (field.row->draw.how == FieldDraw::How::kByHand) rows.insert(field.path);
  }
  for (const auto& [path, function] : draw::DrawnByHand()) functions.insert(path);
  EXPECT_EQ(rows, functions);
}

TEST(GenerateCase, KeepsTheNumberOfRanksAskedFor) {
  for (uint64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(GenerateCase({.world = 4}, 3, i).WorldSize(), 4);
    EXPECT_LE(GenerateCase({.world_max = 5}, 3, i).WorldSize(), 5);
  }
}

TEST(GenerateCase, DrawsAFaultWhereItsRegistrationSays) {
  std::set<std::string> simulated, real;
  for (uint64_t i = 0; i < kCases; ++i) {
    GenerateOptions options = WithFaults();
    const Case made = GenerateCase(options, 9, i);
    for (const FaultCase& fault : made.faults) {
      EXPECT_TRUE(fault.id != "comm/drop" || made.WorldSize() > 1);
      simulated.insert(fault.id);
    }
    options.transport = "gloo";
    for (const FaultCase& fault : GenerateCase(options, 9, i).faults) real.insert(fault.id);
  }
  EXPECT_TRUE(simulated.contains("comm/drop") && !simulated.contains("memory/new"));
  EXPECT_TRUE(real.contains("memory/new") && !real.contains("comm/drop"));
}

TEST(GenerateCase, FilesFailForCertainOnlyOnRanksThatWrite) {
  int gathered = 0;
  for (uint64_t i = 0; i < 20'000; ++i) {
    const Case made = GenerateCase(WithFaults(), 3, i);
    if (made.faults.size() != 2 || made.steps == 0 || !made.training.gathered) continue;
    ++gathered;
    for (const FaultCase& fault : made.faults) {
      EXPECT_TRUE(fault.id != "file/fsync" || fault.where == "0:0") << i;
    }
  }
  EXPECT_GT(gathered, 0);
}

TEST(GenerateCase, StrikesNothingWhereNoFaultIsGiven) {
  for (uint64_t i = 0; i < kCases; ++i) EXPECT_FALSE(GenerateCase({}, 9, i).as_stated);
}

}  // namespace
}  // namespace shardproof
