#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "verify/verdict/property.h"
#include "verify/verdict/scope.h"

namespace shardproof {
namespace {

using ::testing::HasSubstr;

const PropertyRegistration kThrows{
    {.id = "test.throws", .claim = "c", .check = [](const Evidence&, Judgement&) {
       throw std::runtime_error("descriptor 7 of 3");
     }}};
const PropertyRegistration kFinds{
    {.id = "test.finds", .claim = "c", .check = [](const Evidence&, Judgement& judgement) {
       for (int i = 0; i < 30; ++i) {
         Finding finding;
         finding.kind = "differs";
         finding.message = "w differs";
         finding.wanted = {{Phase::kValues, "w", 0, 4096}};
         judgement.Found(finding);
       }
     }}};
const PropertyRegistration kNothing{
    {.id = "test.a_nothing", .claim = "c", .check = [](const Evidence&, Judgement&) {}}};

TEST(VerdictTest, WorseIsTheWorse) {
  EXPECT_EQ(Worse(Verdict::kPass, Verdict::kInconclusive), Verdict::kInconclusive);
  EXPECT_EQ(Worse(Verdict::kFail, Verdict::kInconclusive), Verdict::kFail);
  EXPECT_EQ(Worse(Verdict::kSkip, Verdict::kPass), Verdict::kPass);
  EXPECT_EQ(ToString(Verdict::kInconclusive), "inconclusive");
}

TEST(VerdictTest, JudgementNeedsAComparisonToPass) {
  Judgement judgement;
  EXPECT_EQ(judgement.verdict(), Verdict::kInconclusive);
  EXPECT_EQ(judgement.reason(), "no comparison was made");
  judgement.Skipped("nothing to do");
  EXPECT_EQ(judgement.verdict(), Verdict::kSkip);
  EXPECT_EQ(judgement.reason(), "nothing to do");
  judgement.Compared();
  EXPECT_EQ(judgement.verdict(), Verdict::kPass);
  EXPECT_EQ(judgement.reason(), "");
  judgement.NotCompared("mean was not compared");
  judgement.NotCompared("var was not compared");
  EXPECT_EQ(judgement.verdict(), Verdict::kPass);
  EXPECT_EQ(judgement.reason(), "mean was not compared; and 1 more were not");
  judgement.Inconclusive("rank 1 is absent");
  EXPECT_EQ(judgement.verdict(), Verdict::kInconclusive);
  judgement.Inconclusive("rank 2 is absent");
  EXPECT_THAT(judgement.reason(), HasSubstr("and 1 more"));
  judgement.Found({});
  EXPECT_EQ(judgement.verdict(), Verdict::kFail);
}

TEST(VerdictTest, FingerprintIgnoresRanksAndValues) {
  Finding finding;
  finding.property = "loading.equals_source";
  finding.kind = "differs";
  finding.stage = "ready";
  finding.tensor = "w";
  const std::string print = finding.Fingerprint();
  EXPECT_EQ(print.size(), 16u);
  finding.ranks = {3};
  finding.index = 7;
  EXPECT_EQ(finding.Fingerprint(), print);
  finding.tensor = "v";
  EXPECT_NE(finding.Fingerprint(), print);
  EXPECT_EQ(FindingToJson(finding)["index"], 7);
  EXPECT_EQ(FindingToJson(finding)["class"], "code");
}

TEST(FindingTest, FactsAreFieldsOfTheJson) {
  Finding finding;
  EXPECT_FALSE(FindingToJson(finding).contains("against"));
  finding.facts = {.against = {Against::What::kStage, Phase::kTrain, std::string("saved@3")},
                   .cause = "zeros",
                   .other = "v",
                   .limit_bytes = 7,
                   .collective = 0};
  const nlohmann::json json = FindingToJson(finding);
  EXPECT_EQ(json["against"],
            nlohmann::json({{"what", "stage"}, {"phase", "train"}, {"stage", "saved@3"}}));
  EXPECT_EQ(json["cause"], "zeros");
  EXPECT_EQ(json["other"], "v");
  EXPECT_EQ(json["limit_bytes"], 7);
  EXPECT_EQ(json["collective"], 0);
  EXPECT_FALSE(json.contains("option"));
}

TEST(AgainstTest, IsSaidInWords) {
  EXPECT_EQ((Against{Against::What::kCheckpoint}).Words(), "the checkpoint");
  EXPECT_EQ((Against{Against::What::kStage, Phase::kValues, Stage::kReady}).Words(),
            "`ready` of phase values");
  EXPECT_EQ((Against{Against::What::kRank, Phase::kValues, Stage::kLoaded, 0}).Words(),
            "rank 0 at `loaded`");
  EXPECT_EQ((Against{Against::What::kRank, Phase::kValues, {}, 3}).Words(), "rank 3");
  EXPECT_EQ((Against{Against::What::kEarlier, Phase::kValues, Stage::kBuilt}).Words(),
            "its value at `built`");
}

TEST(JudgeTest, ExceptionsAreInconclusiveAndUnknownIdsListTheKnown) {
  const auto results = Judge({}, {"test.throws", "test.typo"});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].judgement.verdict(), Verdict::kInconclusive);
  EXPECT_THAT(results[0].judgement.reason(), HasSubstr("descriptor 7 of 3"));
  EXPECT_EQ(results[1].judgement.verdict(), Verdict::kInconclusive);
  EXPECT_THAT(results[1].judgement.reason(), HasSubstr("test.finds"));
  EXPECT_FALSE(SelectProperties({"test.typo"}).ok());
  EXPECT_EQ(SelectProperties({}).value().front()->id, "test.a_nothing");
}

TEST(JudgeTest, FindingsAreCappedAndCapturesWantedOnce) {
  const auto results = Judge({}, {"test.finds"});
  EXPECT_EQ(results[0].judgement.findings().size(), kFindingCountMax);
  EXPECT_THAT(results[0].judgement.findings().back().message, HasSubstr("10 more"));
  EXPECT_EQ(results[0].judgement.findings()[0].property, "test.finds");
  EXPECT_EQ(WantedCaptures(results).size(), 1u);
  EXPECT_EQ(WorstVerdict(results), Verdict::kFail);
  EXPECT_EQ(WorstVerdict({}), Verdict::kInconclusive);
}

TEST(RegistryDeathTest, TwoPropertiesWithOneIdEndTheProcess) {
  EXPECT_DEATH(PropertyRegistration({.id = "test.finds", .claim = "other claim"}),
               "two properties have the id test.finds.*other claim");
}

TEST(ScopeTest, NamesRanksAndWhatTheyShare) {
  PhaseEvidence phase;
  phase.mesh = {{"dp_replicate", 8}, {"dp_shard", 8}};
  for (int64_t r = 0; r < 64; ++r) {
    RankEvidence rank;
    rank.rank = r;
    rank.coordinates = {r / 8, r % 8};
    rank.host = "node" + std::to_string(r / 8);
    phase.ranks.push_back(rank);
  }
  EXPECT_EQ(ScopeLine(phase, {5}), "rank 5 of 64");
  EXPECT_EQ(ScopeLine(phase, {3, 11, 19, 27, 35}), "5 of 64 ranks, all dp_shard coordinate 3");
  EXPECT_EQ(ScopeLine(phase, {1, 10}), "ranks 1, 10 of 64");
  phase.laid_over = {{"ep", 2, {"dp_shard"}}};
  EXPECT_EQ(ScopeLine(phase, {1, 11}), "ranks 1, 11 of 64, all ep coordinate 1");
  EXPECT_EQ(ScopeLine(phase, {2, 3}),
            "ranks 2, 3 of 64, all dp_replicate coordinate 0 and dp_shard_mod_ep coordinate 1");
  EXPECT_EQ(HostsOf(phase, {1, 2, 9}), (std::vector<std::string>{"node0", "node1"}));
  EXPECT_EQ(ListSome({"a", "b", "c"}, 2), "a, b and 1 more");
}

}  // namespace
}  // namespace shardproof
