// The training properties on a body of evidence in which everything holds, and with one thing
// broken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/training_evidence.h"
#include "verify/verdict/expectation.h"
#include "verify/verdict/image.h"

namespace shardproof::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(TrainingTest, SoundEvidencePassesEveryProperty) {
  const TrainingEvidence sound;
  for (const char* id :
       {"training.optimizer_live", "training.steps_act", "checkpoint.training_round_trip",
        "checkpoint.resume_exact", "sharding.ranks_match_rank0", "loading.no_meta_left"}) {
    const PropertyResult result = JudgeOne(sound.evidence, id);
    EXPECT_EQ(result.judgement.verdict(), Verdict::kPass)
        << id << ": " << result.judgement.reason();
    EXPECT_GT(result.judgement.comparisons(), 0u) << id;
  }
}

TEST(TrainingTest, NoStepsIsASkipAndNoStageIsInconclusive) {
  const SoundEvidence none;
  for (const char* id :
       {"training.steps_act", "checkpoint.training_round_trip", "checkpoint.resume_exact"}) {
    EXPECT_EQ(JudgeOne(none.evidence, id).judgement.verdict(), Verdict::kSkip) << id;
    TrainingEvidence forgot;
    for (RankEvidence& rank : forgot.Phase("train").ranks) rank.stages.clear();
    EXPECT_EQ(JudgeOne(forgot.evidence, id).judgement.verdict(), Verdict::kInconclusive) << id;
  }
}

TEST(OptimizerLiveTest, NamesWhatIsNotHeldHeldTwiceOrAStranger) {
  TrainingEvidence stale;
  OptimizerRecord& record = *stale.At("train", 1, "ready.optimizer").optimizer;
  std::erase(record.groups[0].parameters, "w");
  record.strangers.push_back({0, 0, "w", {3, 3}});
  Finding finding = OnlyFinding(stale.evidence, "training.optimizer_live");
  EXPECT_EQ(finding.kind, "not-held");
  EXPECT_EQ(finding.tensor, "w");
  EXPECT_THAT(finding.ranks, ElementsAre(1));
  EXPECT_THAT(finding.message, HasSubstr("which the model has no more"));

  TrainingEvidence twice;
  twice.At("train", 0, "stepped@1.optimizer").optimizer->groups.push_back({{}, {"w"}});
  EXPECT_EQ(OnlyFinding(twice.evidence, "training.optimizer_live").kind, "held-twice");

  TrainingEvidence stranger;
  stranger.At("train", 0, "stepped@1.optimizer").optimizer->strangers.push_back({0, 7, "", {2}});
  EXPECT_EQ(OnlyFinding(stranger.evidence, "training.optimizer_live").kind, "stranger");
  stranger.evidence.cannot["train"] = "a script that may step parameters of a loss, too";
  const auto judged = JudgeOne(stranger.evidence, "training.optimizer_live");
  EXPECT_EQ(judged.judgement.verdict(), Verdict::kInconclusive);
}

TEST(GroupsKeptTest, NamesGroupsOptionsAndMembersThatShardingChanged) {
  class BoundEvidence : public TrainingEvidence {
   public:
    BoundEvidence() {
      for (RankEvidence& rank : Phase("train").ranks) {
        StageRecord bound = At("train", rank.rank, "ready.optimizer");
        bound.name = "bound";
        rank.stages.insert(rank.stages.begin(), bound);
      }
    }
    OptimizerRecord& Ready(int64_t rank) { return *At("train", rank, "ready.optimizer").optimizer; }
  };
  const std::string id = "training.groups_kept";
  const BoundEvidence sound;
  const PropertyResult passed = JudgeOne(sound.evidence, id);
  EXPECT_EQ(passed.judgement.verdict(), Verdict::kPass) << passed.judgement.reason();
  EXPECT_GT(passed.judgement.comparisons(), 0u);

  BoundEvidence split;
  split.Ready(1).groups.push_back({});
  EXPECT_EQ(OnlyFinding(split.evidence, id).kind, "groups");
  EXPECT_THAT(OnlyFinding(split.evidence, id).ranks, ElementsAre(1));

  BoundEvidence options;
  options.Ready(0).groups[0].options["lr"] = "0.2";
  EXPECT_THAT(OnlyFinding(options.evidence, id).message, HasSubstr("lr = 0.2"));

  BoundEvidence order;
  auto& parameters = order.Ready(0).groups[0].parameters;
  std::swap(parameters.front(), parameters.back());
  EXPECT_EQ(OnlyFinding(order.evidence, id).kind, "members");

  BoundEvidence stale;  // for training.optimizer_live to say: each is still in its place
  auto& groups = stale.Ready(0).groups;
  stale.Ready(0).strangers.push_back({0, 0, groups[0].parameters.front(), {3, 3}});
  groups[0].parameters.erase(groups[0].parameters.begin());
  EXPECT_EQ(JudgeOne(stale.evidence, id).judgement.verdict(), Verdict::kPass);
}

TEST(StepsAsTwinTest, NamesWhatTheTwinDoesOtherwiseAndTheFirstStepFirst) {
  TrainingEvidence job;
  const auto verdict = [&job] {
    return JudgeOne(job.evidence, "training.steps_as_twin").judgement.verdict();
  };
  EXPECT_EQ(verdict(), Verdict::kSkip);
  std::vector<TwinStep>& steps = job.evidence.oracle.twin_steps;
  steps = {{.stage = std::string("stepped@1"), .compared = 4},
           {.stage = std::string("stepped@2"), .compared = 4, .left_out = "nobody knows"}};
  EXPECT_EQ(verdict(), Verdict::kPass);
  steps[1].why_not = "numbers are drawn";
  EXPECT_EQ(verdict(), Verdict::kInconclusive);
  steps[1].deviations = {{"gradient", "w", {1}, 4, 2, "1", "2", "differs", "they were summed"}};
  const Finding finding = OnlyFinding(job.evidence, "training.steps_as_twin");
  EXPECT_EQ(finding.stage, "stepped@2");
  EXPECT_EQ(finding.explanation, "they were summed");
  EXPECT_THAT(finding.message, HasSubstr("they were summed"));
  EXPECT_FALSE(finding.is_consequence);
  steps[0].deviations = steps[1].deviations;
  const auto found = JudgeOne(job.evidence, "training.steps_as_twin").judgement.findings();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_FALSE(found[0].is_consequence);
  EXPECT_TRUE(found[1].is_consequence);
}

TEST(StepsAsTwinTest, IsInconclusiveWhereNoRankCameToAStep) {
  TrainingEvidence job;
  for (RankEvidence& rank : job.Phase("train").ranks) {
    std::erase_if(rank.stages,
                  [](const StageRecord& each) { return each.name == Stage::kStepped; });
  }
  const PropertyResult result = JudgeOne(job.evidence, "training.steps_as_twin");
  EXPECT_EQ(result.judgement.verdict(), Verdict::kInconclusive);
  EXPECT_THAT(result.judgement.reason(), HasSubstr("no rank of phase train reached `stepped`"));
}

TEST(TrainingRoundTripTest, NamesWhatIsLostOrAnother) {
  TrainingEvidence lost;
  for (RankEvidence& rank : lost.Phase("train_resume").ranks) {
    lost.At("train_resume", rank.rank, "restored@2.optimizer").tensors.erase("w.exp_avg");
  }
  Finding finding = OnlyFinding(lost.evidence, "checkpoint.training_round_trip");
  EXPECT_EQ(finding.kind, "lost");
  EXPECT_EQ(finding.tensor, "w.exp_avg");
  EXPECT_EQ(finding.phase, Phase::kTrainResume);

  TrainingEvidence rate;
  rate.At("train", 2, "restored@2.optimizer").optimizer->groups[0].options["lr"] = "0.2";
  finding = JudgeOne(rate.evidence, "checkpoint.training_round_trip").judgement.findings().at(0);
  EXPECT_EQ(finding.kind, "option");
  EXPECT_THAT(finding.message, HasSubstr("its lr is 0.2, it was 0.1"));

  TrainingEvidence rng;
  rng.At("train", 0, "restored@2").rng = "another";
  EXPECT_EQ(JudgeOne(rng.evidence, "checkpoint.training_round_trip").judgement.verdict(),
            Verdict::kPass)
      << "steps go on from the saved state: it was restored after that observation";
  rng.At("train", 0, "resumed@4").rng = "others";
  EXPECT_EQ(OnlyFinding(rng.evidence, "checkpoint.training_round_trip").kind, "rng");
  for (const char* stage : {"restored@2", "stepped@3", "resumed@3", "stepped@4", "resumed@4"})
    rng.At("train", 0, stage).keeps_rng = false;
  const std::string saved = rng.At("train", 0, "saved@2").rng;
  const auto draw = [&](const std::string& stepped, const std::string& resumed) {
    for (const char* step : {"@3", "@4"}) {
      rng.At("train", 0, std::string("stepped") + step).rng = stepped;
      rng.At("train", 0, std::string("resumed") + step).rng = resumed;
    }
    return JudgeOne(rng.evidence, "checkpoint.training_round_trip").judgement.verdict();
  };
  EXPECT_EQ(draw(saved, "another"), Verdict::kPass) << "nothing is drawn";
  EXPECT_EQ(draw("seeded anew", "seeded anew"), Verdict::kPass);
  EXPECT_EQ(draw("drawn", "others"), Verdict::kFail);
  rng.evidence.cannot["rng"] = "it says so";
  EXPECT_EQ(JudgeOne(rng.evidence, "checkpoint.training_round_trip").judgement.verdict(),
            Verdict::kPass);
}

TEST(ResumeExactTest, IsHeldOnlyAgainstAJobThatDoesTheSameTwice) {
  TrainingEvidence other;
  other.Change("train", "resumed@4", "w");
  const Finding finding = OnlyFinding(other.evidence, "checkpoint.resume_exact");
  EXPECT_EQ(finding.stage, "resumed@4");
  EXPECT_EQ(finding.tensor, "w");

  std::vector<TwinStep>& steps = other.evidence.oracle.twin_steps;
  steps = {{.stage = std::string("resumed@3")}, {.stage = std::string("resumed@4")}};
  steps[0].adds_otherwise = true;
  OnlyFinding(other.evidence, "checkpoint.resume_exact");
  steps[1].adds_otherwise = true;
  const Judgement told = JudgeOne(other.evidence, "checkpoint.resume_exact").judgement;
  EXPECT_EQ(told.verdict(), Verdict::kPass);
  EXPECT_THAT(told.reason(), HasSubstr("from `resumed@4` on steps were not compared bit for bit"));
  steps[0].deviations = {{.kind = "gradient"}};
  OnlyFinding(other.evidence, "checkpoint.resume_exact");
  steps.clear();

  other.Change("again", "stepped@4", "big");
  const PropertyResult result = JudgeOne(other.evidence, "checkpoint.resume_exact");
  EXPECT_EQ(result.judgement.verdict(), Verdict::kInconclusive);
  EXPECT_THAT(result.judgement.reason(), HasSubstr("the same twice: big"));
}

/// "norm" is a statistic of each rank's own batches, from the first step on; what is restored has
/// those of rank 0, which has saved.
TrainingEvidence OfOwnBatches() {
  TrainingEvidence own;
  for (const char* phase : {"train", "again", "train_resume"}) {
    for (RankEvidence& rank : own.Phase(phase).ranks) {
      for (TensorDescriptor& descriptor : rank.descriptors) {
        if (descriptor.name == "norm") descriptor.varies = "batches";
      }
      for (StageRecord& stage : rank.stages) {
        const bool has_own = stage.step > 0 && stage.name != NameOf(Stage::kRestored);
        if (has_own && stage.of == "model")
          stage.tensors.at("norm").digest.lane1 += static_cast<uint64_t>(rank.rank);
      }
    }
  }
  return own;
}

TEST(OwnBatches, AreComparedWithThoseOfARankThatHadThem) {
  TrainingEvidence own = OfOwnBatches();
  const PropertyResult ranks = JudgeOne(own.evidence, "sharding.ranks_match_rank0");
  EXPECT_EQ(ranks.judgement.verdict(), Verdict::kPass);
  EXPECT_THAT(ranks.judgement.reason(), HasSubstr("norm at `stepped@1` was not compared"));
  for (const char* id : {"checkpoint.resume_exact", "checkpoint.training_round_trip"})
    EXPECT_EQ(JudgeOne(own.evidence, id).judgement.verdict(), Verdict::kPass) << id;
  for (int64_t time = 0; time < 100; ++time) own.Change("train", "restored@2", "norm");
  EXPECT_EQ(OnlyFinding(own.evidence, "checkpoint.training_round_trip").tensor, "norm");
  own = OfOwnBatches();
  own.Change("train", "resumed@4", "norm");
  const PropertyResult resumed = JudgeOne(own.evidence, "checkpoint.resume_exact");
  EXPECT_EQ(resumed.judgement.verdict(), Verdict::kPass);
  EXPECT_THAT(resumed.judgement.reason(), HasSubstr("norm at `resumed@4` was not compared"));
}

/// A file that holds what the ranks have at a stage.
FileTensor HeldAsFile(const PhaseEvidence& phase, const std::string& stage,
                      const std::string& name) {
  const Image image = ImagesOf(phase, stage, name).at(0);
  return {.name = name,
          .dtype = image.dtype,
          .shape = image.shape,
          .digest = image.digest,
          .coverage = image.coverage};
}

class SavedEvidence : public TrainingEvidence {
 public:
  SavedEvidence() {
    evidence.test_case.subject = "reference";
    const PhaseEvidence& train = Phase("train");
    for (const auto& [name, state] : At("train", 0, "saved@2").tensors) {
      if (IsPersistent(evidence.oracle, name))
        Files()["model." + name] = HeldAsFile(train, "saved@2", name);
    }
    for (const auto& [name, state] : At("train", 0, "saved@2.optimizer").tensors) {
      Files()["optimizer.state." + name] = HeldAsFile(train, "saved@2.optimizer", name);
    }
    Files()["rng_0"] = {};
  }
  std::map<std::string, FileTensor>& Files() {
    return evidence.oracle.saved[Phase::kTrain].tensors;
  }
};

TEST(TrainingFilesTest, NamesWhatTheFilesLackHaveBesidesOrHoldOtherwise) {
  const std::string id = "checkpoint.training_files";
  const SavedEvidence sound;
  const PropertyResult result = JudgeOne(sound.evidence, id);
  EXPECT_EQ(result.judgement.verdict(), Verdict::kPass) << result.judgement.reason();
  EXPECT_GT(result.judgement.comparisons(), 5u);

  SavedEvidence absent;
  absent.Files().erase("optimizer.state.w.exp_avg");
  EXPECT_EQ(OnlyFinding(absent.evidence, id).kind, "absent");
  EXPECT_EQ(OnlyFinding(absent.evidence, id).tensor, "w.exp_avg");

  SavedEvidence extra;
  extra.Files()["model.x"] = {};
  EXPECT_EQ(OnlyFinding(extra.evidence, id).kind, "extra");

  SavedEvidence other;
  other.Files()["model.w"].digest.lane0 += 1;
  EXPECT_EQ(OnlyFinding(other.evidence, id).tensor, "w");
  EXPECT_THAT(OnlyFinding(other.evidence, id).message, HasSubstr("on disk"));

  SavedEvidence unreadable;
  unreadable.evidence.oracle.saved[Phase::kTrain].error = "no .metadata";
  EXPECT_EQ(OnlyFinding(unreadable.evidence, id).kind, "unreadable");

  SavedEvidence none;
  none.evidence.oracle.saved.erase(Phase::kTrain);
  EXPECT_EQ(JudgeOne(none.evidence, id).judgement.verdict(), Verdict::kInconclusive);
}

class RootEvidence : public SavedEvidence {
 public:
  RootEvidence() {
    Root() = {.latest = "step-00000002\n",
              .names = {"latest", "step-00000002"},
              .steps = {{.name = "step-00000002", .sealed = true, .tensors = 7}}};
  }
  SavedRoot& Root() { return evidence.oracle.roots[Phase::kTrain]; }
};

TEST(CommitWholeTest, NamesWhatIsNotAsItWasToBe) {
  const std::string id = "checkpoint.commit_whole";
  const RootEvidence sound;
  const PropertyResult result = JudgeOne(sound.evidence, id);
  EXPECT_EQ(result.judgement.verdict(), Verdict::kPass) << result.judgement.reason();
  EXPECT_GT(result.judgement.comparisons(), 7u);
  const auto kind = [&](const std::function<void(RootEvidence&)>& change) {
    RootEvidence changed;
    change(changed);
    return OnlyFinding(changed.evidence, id).kind;
  };
  EXPECT_EQ(kind([](RootEvidence& e) { e.Root().error = "no such directory"; }), "unreadable");
  EXPECT_EQ(kind([](RootEvidence& e) { e.Root().latest = ""; }), "latest");
  EXPECT_EQ(kind([](RootEvidence& e) { e.Root().latest = "step-00000002"; }), "latest");
  EXPECT_EQ(kind([](RootEvidence& e) { e.Root().names.push_back("latest.saving"); }), "leftover");
  EXPECT_EQ(kind([](RootEvidence& e) { e.Root().names = {"latest"}; }), "absent");
  EXPECT_EQ(kind([](RootEvidence& e) { e.Root().steps[0].sealed = false; }), "unsealed");
  EXPECT_EQ(kind([](RootEvidence& e) {
              e.Root().steps[0].damage = {"a", "b", "c", "d"};
            }),
            "damaged");

  RootEvidence others;  // a user's directory, which held steps before
  others.Root().was_empty = false;
  others.Root().names.push_back("step-00000009");
  EXPECT_EQ(JudgeOne(others.evidence, id).judgement.verdict(), Verdict::kPass);

  RootEvidence none;
  none.evidence.oracle.roots.clear();
  EXPECT_EQ(JudgeOne(none.evidence, id).judgement.verdict(), Verdict::kInconclusive);
}

TEST(CommitWholeTest, WhatHasLostAFileIsNotAmongThoseThatAreKept) {
  const auto kind = [&](const std::vector<int64_t>& there, std::optional<int64_t> lacks) {
    RootEvidence e;
    e.evidence.test_case.training.save_every = 1;
    e.Root() = {.latest = "step-00000003\n", .names = {"latest"}, .steps = {}};
    for (const int64_t step : there) {
      e.Root().names.push_back("step-0000000" + std::to_string(step));
      e.Root().steps.push_back({.name = e.Root().names.back(), .sealed = true, .tensors = 7});
    }
    for (RankEvidence& rank : e.Phase("train").ranks) {
      for (StageRecord& stage : rank.stages) stage.step += stage.name == "saved" ? 1 : 0;
      if (lacks) rank.faults.push_back({.step = lacks, .absent = true});
    }
    const PropertyResult result = JudgeOne(e.evidence, "checkpoint.commit_whole");
    return result.judgement.findings().empty() ? "" : result.judgement.findings()[0].kind;
  };
  EXPECT_EQ(kind({2, 3}, std::nullopt), "");
  EXPECT_EQ(kind({1, 2, 3}, std::nullopt), "leftover");
  EXPECT_EQ(kind({1, 2, 3}, 2), "");
  EXPECT_EQ(kind({1, 3}, 2), "");
  EXPECT_EQ(kind({2, 3}, 2), "absent");
  EXPECT_EQ(kind({2, 3}, 3), "");  // it was lost where it was restored
  EXPECT_EQ(kind({1, 2, 3}, 1), "");
}

/// What is found where steps 1 to 3 are saved, `damage` struck, and `restored` is restored.
std::string KindOfRestore(const std::vector<FaultRecord>& damage, std::optional<int64_t> restored,
                          const std::string& error = "") {
  RootEvidence e;
  e.evidence.test_case.training.save_every = 1;
  e.evidence.test_case.faults = {{"file/damage-save", "cut:1"}};
  e.Root().steps.clear();
  for (const char* name : {"step-00000001", "step-00000002", "step-00000003"}) {
    e.Root().steps.push_back({.name = name, .sealed = true, .tensors = 7});
  }
  for (RankEvidence& rank : e.Phase("train").ranks) {
    rank.faults = damage;
    for (FaultRecord& record : rank.faults) {
      record.id = "file/damage-save";
      record.where = record.file + std::to_string(record.step.value_or(0));
    }
    if (!error.empty()) rank.errors = {{"bad-input", "restored", error}};
    for (StageRecord& stage : rank.stages) {
      if (stage.name == "restored") stage.step = restored.value_or(0);
    }
    if (restored) continue;
    std::erase_if(rank.stages, [](const StageRecord& stage) { return stage.name == "restored"; });
  }
  const PropertyResult result = JudgeOne(e.evidence, "fault.damage_recovered");
  EXPECT_GT(result.judgement.comparisons(), 0u);
  return result.judgement.findings().empty() ? "" : result.judgement.findings()[0].kind;
}

TEST(DamageRecoveredTest, TheNewestIsRestoredThatIsWholeAndThatLatestAllows) {
  const FaultRecord newest{.file = "d/f", .step = 3}, second{.file = "g", .step = 2};
  EXPECT_EQ(KindOfRestore({newest}, 3), "restored");
  EXPECT_EQ(KindOfRestore({newest}, 2), "");
  EXPECT_EQ(KindOfRestore({newest}, 1), "not-newest");
  EXPECT_EQ(KindOfRestore({newest}, std::nullopt, "f: wrong"), "not-recovered");
  EXPECT_EQ(KindOfRestore({newest, second}, 1), "");
  EXPECT_EQ(KindOfRestore({newest, second}, 2), "restored");
  const FaultRecord harmless{.file = "f", .step = 3, .harmless = true};
  EXPECT_EQ(KindOfRestore({harmless}, 3), "");
  EXPECT_EQ(KindOfRestore({harmless}, 2), "");
  EXPECT_EQ(KindOfRestore({harmless}, 1), "not-newest");
  const FaultRecord to_second{.file = "latest", .step = 2}, to_none{.file = "latest"};
  EXPECT_EQ(KindOfRestore({to_second}, 3), "not-newest");
  EXPECT_EQ(KindOfRestore({to_second}, 2), "");
  EXPECT_EQ(KindOfRestore({to_second, second}, 2), "restored");
  EXPECT_EQ(KindOfRestore({to_second, second}, 1), "");
  EXPECT_EQ(KindOfRestore({to_none}, 3), "");
  EXPECT_EQ(KindOfRestore({to_none}, 2), "not-newest");
}

TEST(DamageRecoveredTest, WhereAllAreDamagedEachFileIsNamed) {
  const std::vector<FaultRecord> all = {{.file = "d/.metadata", .step = 3},
                                        {.file = "__0_0.distcp", .step = 2},
                                        {.file = "values.json", .step = 1}};
  EXPECT_EQ(KindOfRestore(all, std::nullopt, "3/.metadata: x; 2/__0_0.distcp: x; 1/values.json: x"),
            "");
  EXPECT_EQ(KindOfRestore(all, std::nullopt, "3/.metadata: x; 1/values.json: x"), "not-named");
  EXPECT_EQ(KindOfRestore(all, std::nullopt), "not-named");
  EXPECT_EQ(KindOfRestore(all, 1), "restored");
}

TEST(DamageRecoveredTest, WhatIsDamagedIsNotRestored) {
  const std::string id = "fault.damage_recovered";
  const auto damaged = [](TrainingEvidence& e) {
    e.evidence.test_case.faults = {{"file/rot", "2"}};
    e.Phase("train").ranks[0].faults = {{.id = "file/rot",
                                         .where = "2",
                                         .detail = "bit 0 of byte 9 of f",
                                         .file = "f",
                                         .tensors = {"model.w"}}};
  };
  TrainingEvidence restored;
  restored.evidence.test_case.faults = {{"file/rot", "2"}};
  EXPECT_EQ(JudgeOne(restored.evidence, id).judgement.verdict(), Verdict::kInconclusive);
  damaged(restored);
  EXPECT_EQ(OnlyFinding(restored.evidence, id).kind, "restored");

  RootEvidence older;
  older.evidence.test_case.training.save_every = 1;
  older.Root().steps.push_back({.name = "step-00000001", .sealed = true, .tensors = 7});
  damaged(older);
  for (RankEvidence& rank : older.Phase("train").ranks) {
    for (StageRecord& stage : rank.stages) stage.step -= stage.name == "restored" ? 1 : 0;
  }
  EXPECT_EQ(JudgeOne(older.evidence, id).judgement.verdict(), Verdict::kPass);

  TrainingEvidence refused;
  damaged(refused);
  for (RankEvidence& rank : refused.Phase("train").ranks) {
    std::erase_if(rank.stages, [](const StageRecord& stage) { return stage.name == "restored"; });
    rank.errors = {{"bad-input", "restored",
                    "tensor 'model.w' in 'f': expected the bytes of digest 1, found 2"}};
  }
  EXPECT_EQ(JudgeOne(refused.evidence, id).judgement.verdict(), Verdict::kPass);
  refused.Phase("train").ranks[1].errors[0].message = "something is wrong";
  EXPECT_EQ(OnlyFinding(refused.evidence, id).kind, "not-named");
  refused.evidence.test_case.training.save_every = 1;  // there was an older one
  EXPECT_EQ(OnlyFinding(refused.evidence, id).kind, "not-recovered");
}

}  // namespace
}  // namespace shardproof::testing
