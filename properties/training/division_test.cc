// Optimizers on several ranks: which of them holds what, and that they step it alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "properties/training_evidence.h"
#include "verify/verdict/expectation.h"

namespace shardproof::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Every rank has all parameters, and its optimizer holds some of them, and has state of these.
void Divide(TrainingEvidence& training, const std::vector<std::vector<std::string>>& shares) {
  for (RankEvidence& rank : training.Phase("train").ranks) {
    const auto& share = shares.at(static_cast<size_t>(rank.rank));
    const auto is_left = [&](const std::string& name) {
      return std::find(share.begin(), share.end(), name) == share.end();
    };
    rank.groups.push_back({{rank.rank}, {0, 1, 2}, {0, 1, 2}});
    for (TensorDescriptor& each : rank.descriptors) {
      if (each.OwnedElements() == each.ElementCount()) each.groups = 0;
    }
    for (StageRecord& stage : rank.stages) {
      if (!stage.optimizer) continue;
      std::erase_if(stage.optimizer->groups[0].parameters, is_left);
      std::erase_if(stage.tensors, [&](const auto& state) {
        return is_left(state.first.substr(0, state.first.rfind('.')));
      });
    }
  }
}

/// The first parameter is rank 0's, the next two are rank 1's, all others rank 2's, under all their
/// names.
std::vector<std::vector<std::string>> SharesOf(TrainingEvidence& training) {
  std::vector<std::vector<std::string>> shares(3);
  std::map<std::string, size_t> owner_of;  // by the first name
  const OptimizerRecord& optimizer = *training.At("train", 0, "ready.optimizer").optimizer;
  for (const std::string& name : optimizer.groups[0].parameters) {
    const size_t next = owner_of.empty() ? 0 : owner_of.size() < 3 ? 1 : 2;
    const std::string first = TieGroup(training.evidence.oracle, name).front();
    shares[owner_of.emplace(first, next).first->second].push_back(name);
  }
  return shares;
}

/// Each rank has a "norm" of its own, which steps change.
TrainingEvidence Apart() {
  TrainingEvidence apart;
  for (PhaseEvidence& phase : apart.evidence.phases) {
    if (!phase.facts().trains) continue;
    for (RankEvidence& rank : phase.ranks) {
      const auto place = static_cast<int64_t>(rank.groups.size());
      rank.groups.push_back({{rank.rank}, {rank.rank}, {rank.rank}});
      for (TensorDescriptor& each : rank.descriptors) {
        if (each.name == "norm") each.groups = place;
      }
      for (StageRecord& stage : rank.stages) {
        if (stage.of == "model" && stage.step > 0)
          stage.tensors.at("norm").digest.lane1 += static_cast<uint64_t>(rank.rank);
      }
    }
  }
  return apart;
}

TEST(ResumeExactTest, WhatRanksHaveByThemselvesIsHeldAgainstWhatTheyHad) {
  TrainingEvidence apart = Apart();
  const PropertyResult result = JudgeOne(apart.evidence, "checkpoint.resume_exact");
  EXPECT_EQ(result.judgement.verdict(), Verdict::kPass) << result.judgement.reason();
  apart.At("train", 1, "resumed@4").tensors.at("norm").digest.lane1 -= 1;  // that of rank 0
  const Finding finding = OnlyFinding(apart.evidence, "checkpoint.resume_exact");
  EXPECT_EQ(finding.tensor, "norm");
  EXPECT_THAT(finding.ranks, ElementsAre(1));
}

TEST(OptimizerLiveTest, LeavesOpenWhatNoRankOfAScriptSteps) {
  TrainingEvidence script;
  for (RankEvidence& rank : script.Phase("train").ranks) {
    for (StageRecord& record : rank.stages) {
      if (record.optimizer) std::erase(record.optimizer->groups[0].parameters, "w");
    }
  }
  const std::string id = "training.optimizer_live";
  EXPECT_EQ(JudgeOne(script.evidence, id).judgement.verdict(), Verdict::kFail);
  script.evidence.cannot["train"] = "a script that may train a part of its model";
  EXPECT_EQ(JudgeOne(script.evidence, id).judgement.verdict(), Verdict::kInconclusive);
  // Flat slices, as of ZeRO by hand, may be copies of it; one of its shape is what it once was.
  const auto holds = [&](std::vector<int64_t> shape) {
    for (RankEvidence& rank : script.Phase("train").ranks) {
      for (StageRecord& record : rank.stages) {
        if (record.optimizer) record.optimizer->strangers = {{0, 0, "", shape}};
      }
    }
    return JudgeOne(script.evidence, id).judgement.verdict();
  };
  EXPECT_EQ(holds({7}), Verdict::kInconclusive);
  const RankEvidence& first = script.Phase("train").ranks[0];
  EXPECT_EQ(holds(first.Descriptor(first.stages[0].tensors.at("w")).shape), Verdict::kFail);
  for (RankEvidence& rank : script.Phase("train").ranks) {
    for (StageRecord& record : rank.stages) {
      if (record.optimizer) record.optimizer->strangers.clear();
    }
  }
  // If one rank holds it, the others should, too.
  script.At("train", 0, "stepped@1.optimizer").optimizer->groups[0].parameters.push_back("w");
  const auto findings = JudgeOne(script.evidence, id).judgement.findings();
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].kind, "not-held");
}

TEST(OptimizerLiveTest, RanksMayDivideTheParametersAmongThem) {
  const std::string id = "training.optimizer_live";
  TrainingEvidence whole;
  std::vector<std::vector<std::string>> shares = SharesOf(whole);
  TrainingEvidence divided;
  Divide(divided, shares);
  EXPECT_TRUE(JudgeOne(divided.evidence, id).judgement.findings().empty());

  const std::string nobodys = shares[1].back();
  for (const std::string& each : TieGroup(whole.evidence.oracle, nobodys)) {
    std::erase(shares[1], each);
  }
  ASSERT_FALSE(shares[1].empty() || shares[2].empty());
  TrainingEvidence left;
  Divide(left, shares);
  const PropertyResult result = JudgeOne(left.evidence, id);
  ASSERT_FALSE(result.judgement.findings().empty());
  EXPECT_EQ(TieGroup(left.evidence.oracle, nobodys).front(), result.judgement.findings()[0].tensor);
  EXPECT_THAT(result.judgement.findings()[0].ranks, ElementsAre(0, 1, 2));

  const auto every = whole.At("train", 0, "ready.optimizer").optimizer->groups[0].parameters;
  const auto without = [&](const std::string& name) {
    std::vector<std::string> rest = every;
    for (const std::string& each : TieGroup(whole.evidence.oracle, name)) std::erase(rest, each);
    return rest;
  };
  TrainingEvidence misses;
  Divide(misses, {every, without(every[0]), every});
  ASSERT_FALSE(JudgeOne(misses.evidence, id).judgement.findings().empty());
  EXPECT_THAT(JudgeOne(misses.evidence, id).judgement.findings()[0].ranks, ElementsAre(1))
      << "it holds nothing that the others leave to it";

  for (RankEvidence& rank : misses.Phase("train").ranks) {
    for (StageRecord& stage : rank.stages) {
      if (stage.optimizer) stage.optimizer->claims = false;
    }
  }
  EXPECT_TRUE(JudgeOne(misses.evidence, id).judgement.findings().empty());
}

TEST(OptimizersAlikeTest, ARateOrACountOfStepsThatIsNotThatOfTheOthersIsNamed) {
  const std::string id = "sharding.ranks_match_rank0";
  TrainingEvidence rate;
  rate.At("train", 2, "stepped@1.optimizer").optimizer->groups[0].options["lr"] = "0.2";
  Finding finding = FirstFinding(JudgeOne(rate.evidence, id));
  EXPECT_EQ(finding.kind, "unlike-option");
  EXPECT_THAT(finding.ranks, ElementsAre(2));
  EXPECT_THAT(finding.message, HasSubstr("its option lr is 0.2, on rank 0 it is 0.1; the same"));

  TrainingEvidence way;
  OptimizerRecord& one = *way.At("train", 2, "stepped@1.optimizer").optimizer;
  one.groups[0].options["foreach"] = "True";
  way.At("train", 1, "stepped@1.optimizer").optimizer->groups[0].options["foreach"] = "False";
  one.values["w.hook"] = "<object at 0x7f12>";
  EXPECT_TRUE(JudgeOne(way.evidence, id).judgement.findings().empty());

  TrainingEvidence steps;
  for (RankEvidence& rank : steps.Phase("train").ranks) {
    steps.At("train", rank.rank, "stepped@2.optimizer")
        .optimizer->values["<optimizer 1 of 1, AdamW> on 0 to 2.steps"] =
        rank.rank == 1 ? "1" : "2";
  }
  finding = FirstFinding(JudgeOne(steps.evidence, id));
  EXPECT_THAT(finding.ranks, ElementsAre(1));
  EXPECT_THAT(finding.message, HasSubstr("its count of steps is 1, on rank 0 it is 2"));
}

TEST(OptimizersAlikeTest, ANumberWithAFractionThatAnOptimizerKeepsMayBeARanksOwn) {
  TrainingEvidence losses;
  for (RankEvidence& rank : losses.Phase("train").ranks) {
    losses.At("train", rank.rank, "stepped@1.optimizer").optimizer->values["w.prev_loss"] =
        rank.rank == 1 ? "0.5" : "0.25";
  }
  const PropertyResult result = JudgeOne(losses.evidence, "sharding.ranks_match_rank0");
  EXPECT_TRUE(result.judgement.findings().empty());
  EXPECT_THAT(result.judgement.reason(), HasSubstr("prev_loss of w, a number that each rank's"));
}

TEST(OptimizersAlikeTest, StateThatOneRankLacksIsNamedUnlessItIsAnothersToHave) {
  const std::string id = "sharding.ranks_match_rank0";
  TrainingEvidence sound;
  const auto every = sound.At("train", 0, "ready.optimizer").optimizer->groups[0].parameters;
  TrainingEvidence lost;
  Divide(lost, {every, {}, every});
  const PropertyResult result = JudgeOne(lost.evidence, id);
  bool is_named = false;
  for (const Finding& each : result.judgement.findings()) {
    is_named = is_named || (each.kind == "absent" && each.ranks == std::vector<int64_t>{1});
  }
  EXPECT_TRUE(is_named);

  const std::vector<std::vector<std::string>> shares = SharesOf(sound);
  TrainingEvidence divided;
  Divide(divided, shares);
  const PropertyResult of_divided = JudgeOne(divided.evidence, id);
  for (const Finding& each : of_divided.judgement.findings()) {
    EXPECT_NE(each.kind, "absent") << each.message;
  }
}

TEST(OptimizerLiveTest, TwoOptimizersThatHoldOneParameterAreToldAndNoFinding) {
  TrainingEvidence both;
  both.At("train", 0, "stepped@1.optimizer")
      .optimizer->groups.push_back({{{"<optimizer>", "2 of 2, SGD"}}, {"w"}});
  const PropertyResult result = JudgeOne(both.evidence, "training.optimizer_live");
  EXPECT_EQ(result.judgement.verdict(), Verdict::kInconclusive);
  EXPECT_THAT(result.judgement.reason(), HasSubstr("on rank 0 2 optimizers hold w at `stepped@1`"));
}

TEST(OptimizerLiveTest, OfOneThatHoldsOthersThanTheModelsItIsToldWhereNobodySaidThatItIsTheModels) {
  TrainingEvidence job;
  OptimizerRecord& record = *job.At("train", 1, "stepped@1.optimizer").optimizer;
  record.claims = false;
  record.strangers.push_back({0, 0, "", {3, 3}});
  EXPECT_EQ(JudgeOne(job.evidence, "training.optimizer_live").judgement.reason(), "")
      << "such as those of another model";
  std::erase(record.groups[0].parameters, "w");
  EXPECT_THAT(JudgeOne(job.evidence, "training.optimizer_live").judgement.reason(),
              HasSubstr("no optimizer holds w, and one holds 1 that are none of the model's"));
}

TEST(NothingUnobservedTest, AnOptimizerThatGoesOnWhereNoSaveWasObservedIsTold) {
  TrainingEvidence job;
  std::erase_if(job.evidence.phases, [](const auto& phase) { return phase.name() != "train"; });
  PhaseEvidence& phase = job.Phase("train");
  const auto reason = [&] {
    return JudgeOne(job.evidence, "conformance.nothing_unobserved").judgement.reason();
  };
  EXPECT_EQ(reason(), "");
  for (RankEvidence& rank : phase.ranks) {
    std::erase_if(rank.stages, [](const auto& stage) { return stage.name == Stage::kSaved; });
    StageRecord later = job.At("train", rank.rank, "resumed@4.optimizer");
    later.name = "saved";
    rank.stages.push_back(later);  // of what was resumed, and not what it was resumed from
  }
  EXPECT_THAT(reason(), HasSubstr("whether the optimizer went on with the state that was saved"));
}

TEST(NothingUnobservedTest, AnOptimizerThatNeverStepsHasNothingToGoOnWith) {
  TrainingEvidence job;
  std::erase_if(job.evidence.phases, [](const auto& phase) { return phase.name() != "train"; });
  PhaseEvidence& phase = job.Phase("train");
  phase.phase = Phase::kValues;
  const auto reason = [&] {
    return JudgeOne(job.evidence, "conformance.nothing_unobserved").judgement.reason();
  };
  for (RankEvidence& rank : phase.ranks) {
    std::erase_if(rank.stages, [](const StageRecord& stage) {
      return stage.name == Stage::kSaved && stage.of == "optimizer";
    });
  }
  EXPECT_THAT(reason(), HasSubstr("whether the optimizer went on with the state that was saved"));
  for (RankEvidence& rank : phase.ranks) {
    std::erase_if(rank.stages, [](const StageRecord& stage) {
      return stage.name == Stage::kStepped || stage.name == Stage::kResumed;
    });
  }
  EXPECT_EQ(reason(), "");
}

}  // namespace
}  // namespace shardproof::testing
