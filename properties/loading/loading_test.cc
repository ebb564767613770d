#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "properties/training_evidence.h"
#include "verify/verdict/expectation.h"

namespace shardproof::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Finding& OnlyFinding(const PropertyResult& result) {
  EXPECT_EQ(result.judgement.findings().size(), 1u) << result.judgement.reason();
  static const Finding kNone;
  return result.judgement.findings().empty() ? kNone : result.judgement.findings()[0];
}

const Property* Registered(const std::string& id) { return SelectProperties({id}).value().front(); }

/// Whether it states that it judges what sound evidence does not have: nothing is injected there,
/// no step is taken, nothing is on a device, and the reference claims nothing.
bool NeedsMore(const Property& property) {
  const auto only_steps = [](const Reading& reading) {
    return std::all_of(reading.phases.begin(), reading.phases.end(),
                       [](Phase phase) { return FactsOf(phase).trains; });
  };
  const auto& capabilities = property.capabilities;
  return property.case_needs != "{}" || property.only_subjects ||
         property.judged_on == JudgedOn::kDevice ||
         std::all_of(property.reads.begin(), property.reads.end(), only_steps) ||
         std::find(capabilities.begin(), capabilities.end(), "train") != capabilities.end();
}

TEST(SoundEvidenceTest, EveryPropertyPassesWithComparisonsOrSaysWhyNot) {
  for (const int64_t ranks : {1, 2, 3, 4, 6}) {
    const SoundEvidence sound(ranks, ranks == 3 ? 2 : 3);
    for (const PropertyResult& result : Judge(sound.evidence, {})) {
      const Judgement& judgement = result.judgement;
      if (NeedsMore(*Registered(result.id))) {
        EXPECT_EQ(judgement.verdict(), Verdict::kSkip) << result.id;
        continue;
      }
      const std::string first = judgement.findings().empty() ? "" : judgement.findings()[0].message;
      EXPECT_EQ(judgement.verdict(), Verdict::kPass)
          << result.id << " with " << ranks << " ranks: " << judgement.reason() << first;
      EXPECT_GT(judgement.comparisons(), 0u) << result.id;
    }
  }
}

TEST(SoundEvidenceTest, NoPropertyPassesOnNothing) {
  for (const PropertyResult& result : Judge(Evidence{}, {})) {
    EXPECT_NE(result.judgement.verdict(), Verdict::kPass) << result.id;
    EXPECT_NE(result.judgement.verdict(), Verdict::kFail) << result.id;
    EXPECT_NE(result.judgement.reason(), "") << result.id;
  }
}

TEST(SoundEvidenceTest, NoPropertyPassesWithoutRanks) {
  SoundEvidence sound;
  for (PhaseEvidence& phase : sound.evidence.phases) phase.ranks.clear();
  for (const PropertyResult& result : Judge(sound.evidence, {})) {
    EXPECT_NE(result.judgement.verdict(), Verdict::kPass) << result.id;
  }
}

TEST(SoundEvidenceTest, EveryPropertyHasItsFields) {
  for (const Property& property : AllProperties()) {
    EXPECT_FALSE(property.claim.empty()) << property.id;
    EXPECT_FALSE(property.reads.empty()) << property.id;
    EXPECT_TRUE(nlohmann::json::parse(property.case_needs).is_object()) << property.id;
    EXPECT_FALSE(property.tolerance.empty()) << property.id;
    EXPECT_FALSE(property.source.empty()) << property.id;
    // A fault that does not fire is inconclusive, which no planted bug can turn red.
    if (property.id == "fault.every_fault_fires") continue;
    EXPECT_FALSE(property.killed_by.empty()) << property.id;
  }
}

/// A phase that no property states is not launched: one that reads it all the same would miss it.
TEST(SoundEvidenceTest, APropertyReadsThePhasesThatItStatesAndNoOthers) {
  TrainingEvidence training;
  PhaseEvidence on_device = training.Phase("again");
  on_device.phase = Phase::kTrainOnDevice;
  training.evidence.test_case.training.offload = 0.5;
  training.evidence.phases.push_back(on_device);
  for (const Property& property : AllProperties()) {
    const uint64_t all = JudgeOne(training.evidence, property.id).judgement.comparisons();
    Evidence stated = training.evidence;
    std::erase_if(stated.phases,
                  [&](const PhaseEvidence& phase) { return !property.Reads(phase.phase); });
    EXPECT_EQ(JudgeOne(stated, property.id).judgement.comparisons(), all) << property.id;
  }
}

TEST(SoundEvidenceTest, ARankThatStopsEarlyMakesValuePropertiesInconclusive) {
  SoundEvidence sound;
  sound.Phase("values").ranks[1].stages.resize(4);
  sound.Phase("values").ranks[1].exit = "signal 9";
  for (const char* id : {"loading.no_meta_left", "loading.all_defined", "loading.equals_source",
                         "loading.keys_match", "loading.ties_kept"}) {
    const PropertyResult result = JudgeOne(sound.evidence, id);
    EXPECT_NE(result.judgement.verdict(), Verdict::kPass) << id;
    EXPECT_THAT(result.judgement.reason(), HasSubstr("rank 1")) << id;
  }
}

TEST(NoMetaLeftTest, NamesRankAndBuffer) {
  SoundEvidence sound;
  sound.State("values", 1, "ready", "rope.inv_freq").is_meta = true;
  const Finding finding = OnlyFinding(JudgeOne(sound.evidence, "loading.no_meta_left"));
  EXPECT_EQ(finding.kind, "meta");
  EXPECT_EQ(finding.tensor, "rope.inv_freq");
  EXPECT_THAT(finding.ranks, ElementsAre(1));
  EXPECT_THAT(finding.hosts, ElementsAre("node0"));
  EXPECT_THAT(finding.message, HasSubstr("rank 1 of 3"));
}

TEST(NoMetaLeftTest, ThousandsAreCappedAndCounted) {
  SoundEvidence sound;
  for (int i = 0; i < 1000; ++i) {
    TensorState state = sound.State("values", 0, "ready", "w");
    state.is_meta = true;
    sound.Stage("values", 0, "ready").tensors["copy" + std::to_string(i)] = state;
  }
  const PropertyResult result = JudgeOne(sound.evidence, "loading.no_meta_left");
  EXPECT_EQ(result.judgement.findings().size(), kFindingCountMax);
  EXPECT_THAT(result.judgement.findings().back().message, HasSubstr("and 980 more"));
}

TEST(AllDefinedTest, FindsUndefinedAbsentAndContradiction) {
  SoundEvidence sound;
  sound.State("values", 2, "ready", "lost").content = Content::kUndefined;
  EXPECT_EQ(OnlyFinding(JudgeOne(sound.evidence, "loading.all_defined")).kind, "undefined");

  SoundEvidence absent;
  absent.Stage("values", 1, "ready").tensors.erase("w");
  const Finding finding = OnlyFinding(JudgeOne(absent.evidence, "loading.all_defined"));
  EXPECT_EQ(finding.kind, "absent");
  EXPECT_THAT(finding.ranks, ElementsAre(1));

  SoundEvidence on_meta;
  on_meta.State("values", 1, "loaded", "w").content = Content::kDefined;
  EXPECT_EQ(OnlyFinding(JudgeOne(on_meta.evidence, "loading.all_defined")).failure_class,
            "verifier");
}

TEST(AllDefinedTest, FindsATensorThatOnlyOneRankHas) {
  SoundEvidence sound;
  sound.Stage("plain", 2, "ready").tensors["extra"] = sound.State("plain", 2, "ready", "scale");
  const Finding finding = OnlyFinding(JudgeOne(sound.evidence, "loading.all_defined"));
  EXPECT_EQ(finding.tensor, "extra");
  EXPECT_THAT(finding.ranks, ElementsAre(0, 1));
}

TEST(NoNewNanTest, NamesTheFirstIndexAndAllowsWhatTheSourceHas) {
  SoundEvidence sound;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  sound.Rewrite("values", 1, "ready", "w", SetF32(7, nan));
  const Finding finding = OnlyFinding(JudgeOne(sound.evidence, "loading.no_new_nan"));
  EXPECT_EQ(finding.kind, "nan");
  EXPECT_EQ(finding.index, 7u);
  EXPECT_THAT(finding.coordinates, ElementsAre(2, 1));
  EXPECT_THAT(finding.ranks, ElementsAre(1));
}

TEST(NoNewNanTest, AsksForAllThatTheSourceHasInItsPlaces) {
  SoundEvidence sound;
  FileTensor& source = sound.evidence.oracle.source.tensors["w"];
  source.nan_count = 1;
  source.first_nonfinite = 7;
  EXPECT_EQ(JudgeOne(sound.evidence, "loading.no_new_nan").judgement.findings()[0].kind, "lost");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* phase : {"values", "plain", "resume"}) {
    for (const RankEvidence& rank : sound.Phase(phase).ranks) {
      for (const StageRecord& stage : rank.stages) {
        if (stage.tensors.at("w").content != Content::kDefined) continue;
        sound.Rewrite(phase, rank.rank, stage.name, "w", SetF32(7, nan));
      }
    }
  }
  EXPECT_EQ(JudgeOne(sound.evidence, "loading.no_new_nan").judgement.verdict(), Verdict::kPass);
  source.first_nonfinite = 6;
  EXPECT_EQ(JudgeOne(sound.evidence, "loading.no_new_nan").judgement.findings()[0].kind, "moved");
}

TEST(EqualsSourceTest, NamesRankElementAndValues) {
  SoundEvidence sound;
  sound.Rewrite("values", 1, "ready", "w", SetF32(7, 0.0f));
  const Finding finding = OnlyFinding(JudgeOne(sound.evidence, "loading.equals_source"));
  EXPECT_EQ(finding.facts.against.what, Against::What::kCheckpoint);
  EXPECT_EQ(finding.kind, "differs");
  EXPECT_EQ(finding.stage, "ready");
  EXPECT_THAT(finding.ranks, ElementsAre(1));
  EXPECT_EQ(finding.index, 7u);
  EXPECT_THAT(finding.coordinates, ElementsAre(2, 1));
  EXPECT_EQ(finding.differing, 1u);
  EXPECT_EQ(finding.seen, "0 (0x00000000)");
  EXPECT_THAT(finding.explanation, HasSubstr("zeros"));
}

TEST(EqualsSourceTest, TheEarliestStageIsTheOneNamed) {
  SoundEvidence sound;
  for (const char* stage : {"loaded", "ready", "restored"}) {
    sound.Rewrite("values", 0, stage, "w", SetF32(1, 9.0f));
  }
  const Finding finding = OnlyFinding(JudgeOne(sound.evidence, "loading.equals_source"));
  EXPECT_EQ(finding.stage, "loaded");
  EXPECT_THAT(finding.message, HasSubstr("still so at `ready`, `restored`"));
}

TEST(EqualsSourceTest, ALargeTensorIsNamedToTheElementBySecondRun) {
  SoundEvidence sound;
  sound.Rewrite("values", 2, "ready", "big", SetF32(2500, -1.0f));
  sound.Rewrite("values", 2, "ready", "big", SetF32(2501, -1.0f));
  const std::vector<PropertyResult> first = Judge(sound.evidence, {"loading.equals_source"});
  ASSERT_EQ(first[0].judgement.findings().size(), 1u);
  EXPECT_FALSE(first[0].judgement.findings()[0].index.has_value());
  EXPECT_THAT(first[0].judgement.findings()[0].ranks, ElementsAre(2));

  const std::vector<CaptureRequest> captures = WantedCaptures(first);
  ASSERT_EQ(captures.size(), 1u);
  EXPECT_EQ(captures[0].tensor, "big");
  EXPECT_EQ(captures[0].byte_start, 8192u);
  EXPECT_EQ(captures[0].byte_length, 12000u - 8192u);
  sound.Capture(captures);
  const Finding finding = OnlyFinding(JudgeOne(sound.evidence, "loading.equals_source"));
  EXPECT_EQ(finding.index, 2500u);
  EXPECT_EQ(finding.differing, 2u);
  EXPECT_THAT(finding.ranks, ElementsAre(2));
  EXPECT_EQ(finding.seen, "-1 (0xbf800000)");
  EXPECT_TRUE(finding.wanted.empty());
}

TEST(EqualsSourceTest, PoisonShowsWithoutBytes) {
  SoundEvidence sound;
  sound.Rewrite("values", 1, "ready", "big", FillBytes('\xff'));
  const Finding finding = OnlyFinding(JudgeOne(sound.evidence, "loading.equals_source"));
  EXPECT_THAT(finding.ranks, ElementsAre(1));
  EXPECT_EQ(finding.explanation, "never written (poison)");
}

TEST(EqualsSourceTest, AnUnreadableSourceIsInconclusive) {
  SoundEvidence sound;
  sound.evidence.oracle.source.error = "header is cut short";
  const PropertyResult result = JudgeOne(sound.evidence, "loading.equals_source");
  EXPECT_EQ(result.judgement.verdict(), Verdict::kInconclusive);
  EXPECT_THAT(result.judgement.reason(), HasSubstr("header is cut short"));
}

TEST(EqualsSourceTest, WhatHasNoValueWhenReadyIsFound) {
  SoundEvidence sound;
  sound.State("values", 1, "ready", "w").content = Content::kUndefined;
  const Finding finding = OnlyFinding(JudgeOne(sound.evidence, "loading.equals_source"));
  EXPECT_EQ(finding.kind, "undefined");
  EXPECT_THAT(finding.ranks, ElementsAre(1));
}

TEST(KeysMatchTest, AReferenceThatReportsNoKeysFails) {
  SoundEvidence sound;
  for (RankEvidence& rank : sound.Phase("values").ranks) rank.keys.reset();
  EXPECT_EQ(FirstFinding(JudgeOne(sound.evidence, "loading.keys_match")).kind, "unreported");
  sound.Phase("values").ranks[1].errors.push_back({"failed", "loaded", "disk: read error"});
  EXPECT_EQ(JudgeOne(sound.evidence, "loading.keys_match").judgement.verdict(),
            Verdict::kInconclusive);
}

TEST(MissingAlikeTest, FindsOneRankThatDiffersAndSkipsWithoutMissingKeys) {
  SoundEvidence sound;
  sound.Rewrite("values", 1, "ready", "lost", SetF32(2, 3.0f));
  const Finding finding = OnlyFinding(JudgeOne(sound.evidence, "loading.missing_alike"));
  EXPECT_EQ(finding.index, 2u);
  EXPECT_THAT(finding.ranks, ElementsAre(1));
  OracleRecord& oracle = sound.evidence.oracle;
  const FileTensor initial = oracle.missing.at("lost");
  // How a framework initialises is its own matter: then it must have a value, whatever that is, and
  // replicas are held against each other.
  oracle.missing.clear();
  EXPECT_EQ(JudgeOne(sound.evidence, "loading.missing_alike").judgement.verdict(), Verdict::kPass);
  sound.State("values", 1, "restored", "lost").content = Content::kUndefined;
  EXPECT_EQ(OnlyFinding(JudgeOne(sound.evidence, "loading.missing_alike")).kind, "undefined");
  oracle.source.tensors["lost"] = initial;
  EXPECT_EQ(JudgeOne(sound.evidence, "loading.missing_alike").judgement.verdict(), Verdict::kSkip);
}

TEST(BuffersPreservedTest, FindsClobberedAndRebuiltBuffers) {
  SoundEvidence sound;
  sound.Rewrite("values", 2, "ready", "expert_bias", FillBytes('\xff'));
  const Finding finding = OnlyFinding(JudgeOne(sound.evidence, "loading.buffers_preserved"));
  EXPECT_EQ(finding.facts.against.what, Against::What::kEarlier);
  EXPECT_EQ(finding.facts.against.stage.text(), "built");
  EXPECT_EQ(finding.facts.cause, "poison");
  EXPECT_EQ(finding.kind, "clobbered");
  EXPECT_THAT(finding.ranks, ElementsAre(2));
  EXPECT_EQ(finding.explanation, "never written (poison)");

  SoundEvidence rebuilt;
  rebuilt.Descriptor("values", 0, "ready", "norm").identity = 77;
  EXPECT_EQ(OnlyFinding(JudgeOne(rebuilt.evidence, "loading.buffers_preserved")).kind, "rebuilt");
}

TEST(DerivedBuffersTest, AllowsUlpMaxAndNamesTheElement) {
  SoundEvidence sound;
  float value = sound.evidence.oracle.derived["rope.inv_freq"].values[1];
  value = std::nextafter(value, 10.0f);
  sound.Rewrite("values", 1, "ready", "rope.inv_freq", SetF32(1, value));
  EXPECT_EQ(JudgeOne(sound.evidence, "loading.derived_buffers").judgement.verdict(),
            Verdict::kPass);
  for (const int64_t rank : {1, 2}) {
    sound.Rewrite("values", rank, "ready", "rope.inv_freq", SetF32(1, 0.0f));
  }
  const Finding finding = OnlyFinding(JudgeOne(sound.evidence, "loading.derived_buffers"));
  EXPECT_EQ(finding.index, 1u);
  EXPECT_THAT(finding.ranks, ElementsAre(1, 2));
}

TEST(DerivedBuffersTest, JudgesTheOriginalToo) {
  SoundEvidence sound;
  for (int64_t rank = 0; rank < 3; ++rank) {
    TensorState state = sound.State("values", rank, "ready", "rope.inv_freq");
    if (rank == 1) state.bytes = {{0, std::string(8, '\0')}};
    sound.Stage("values", rank, "ready").tensors["rope.original_inv_freq"] = state;
  }
  const Finding finding = OnlyFinding(JudgeOne(sound.evidence, "loading.derived_buffers"));
  EXPECT_EQ(finding.tensor, "rope.original_inv_freq");
  EXPECT_THAT(finding.ranks, ElementsAre(1));
}

TEST(TiesKeptTest, FindsUntiedAliasedAndSavedTwice) {
  SoundEvidence sound;
  sound.Descriptor("values", 1, "ready", "head").alias_group = 5;
  const Finding untied = OnlyFinding(JudgeOne(sound.evidence, "loading.ties_kept"));
  EXPECT_EQ(untied.kind, "untied");
  EXPECT_FALSE(untied.facts.other.empty());
  EXPECT_THAT(untied.ranks, ElementsAre(1));

  SoundEvidence aliased;
  aliased.Descriptor("values", 0, "ready", "w").alias_group = 9;
  aliased.Descriptor("values", 0, "ready", "big").alias_group = 9;
  EXPECT_EQ(OnlyFinding(JudgeOne(aliased.evidence, "loading.ties_kept")).kind, "aliased");
  aliased.Descriptor("values", 0, "ready", "w").also = true;
  EXPECT_EQ(OnlyFinding(JudgeOne(aliased.evidence, "loading.ties_kept")).kind, "aliased");
  aliased.Descriptor("values", 0, "ready", "big").also = true;
  EXPECT_EQ(JudgeOne(aliased.evidence, "loading.ties_kept").judgement.verdict(), Verdict::kPass);

  SoundEvidence renamed;  // the same object, under a name of the framework's own
  TensorDescriptor& own = renamed.Descriptor("values", 0, "ready", "w");
  const TensorDescriptor& big = renamed.Descriptor("values", 0, "ready", "big");
  own.also = true;
  own.alias_group = renamed.Descriptor("values", 0, "ready", "big").alias_group = 9;
  own.identity = big.identity;
  own.requires_grad = false;
  EXPECT_EQ(JudgeOne(renamed.evidence, "loading.ties_kept").judgement.verdict(), Verdict::kPass);
  own.requires_grad = true;  // what an adapter trains may not be the model's
  EXPECT_EQ(OnlyFinding(JudgeOne(renamed.evidence, "loading.ties_kept")).kind, "aliased");

  SoundEvidence twice;
  twice.evidence.oracle.saved[Phase::kValues].tensors["head"] =
      twice.evidence.oracle.source.tensors["embed"];
  EXPECT_EQ(OnlyFinding(JudgeOne(twice.evidence, "loading.ties_kept")).kind, "saved-twice");
}

TEST(TiesKeptTest, WithoutACheckpointRanksAreHeldAgainstTheFirst) {
  SoundEvidence job;
  job.evidence.oracle.declared.clear();
  job.evidence.oracle.ties.clear();
  EXPECT_THAT(TiesOfJob(job.evidence.phases.front()), ElementsAre(ElementsAre("embed", "head")));
  EXPECT_EQ(JudgeOne(job.evidence, "loading.ties_kept").judgement.verdict(), Verdict::kPass);
  job.Descriptor("values", 1, "ready", "head").alias_group = 5;
  EXPECT_EQ(OnlyFinding(JudgeOne(job.evidence, "loading.ties_kept")).kind, "untied");
}

TEST(DescriptorsKeptTest, FindsEachField) {
  const std::vector<std::pair<std::string, std::function<void(TensorDescriptor&)>>> changes = {
      {"requires_grad", [](TensorDescriptor& d) { d.requires_grad = false; }},
      {"attributes", [](TensorDescriptor& d) { d.attributes.clear(); }},
      {"rebuilt", [](TensorDescriptor& d) { d.identity = 999; }},
      {"local_shape",
       [](TensorDescriptor& d) {
         d.local_shape = {2, 4};
       }},
      {"kind", [](TensorDescriptor& d) { d.kind = "buffer"; }}};
  for (const auto& [kind, change] : changes) {
    SoundEvidence sound;
    change(sound.Descriptor("values", 1, "ready", "w"));
    const PropertyResult result = JudgeOne(sound.evidence, "loading.descriptors_kept");
    const auto& findings = result.judgement.findings();
    EXPECT_TRUE(std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
      return finding.kind == kind && finding.ranks == std::vector<int64_t>{1};
    })) << kind;
  }
}

TEST(KeysMatchTest, JudgesInputReportsAndModel) {
  SoundEvidence sound;
  sound.evidence.oracle.missing_allowed.clear();
  const Finding missing = OnlyFinding(JudgeOne(sound.evidence, "loading.keys_match"));
  EXPECT_EQ(missing.kind, "missing");
  EXPECT_EQ(missing.failure_class, "input");

  SoundEvidence concealed;
  for (RankEvidence& rank : concealed.Phase("values").ranks) rank.keys = KeyReport{};
  EXPECT_EQ(OnlyFinding(JudgeOne(concealed.evidence, "loading.keys_match")).kind, "concealed");
  EXPECT_EQ(OnlyFinding(JudgeOne(concealed.evidence, "loading.keys_match")).facts.keys, "missing");

  // What a subject says nothing of is concealed only if there is something to say.
  SoundEvidence silent;
  silent.evidence.test_case.subject = "mine";
  for (PhaseEvidence& phase : silent.evidence.phases) {
    for (RankEvidence& rank : phase.ranks) rank.keys.reset();
  }
  const auto verdict_of = [](const SoundEvidence& sound) {
    return JudgeOne(sound.evidence, "loading.keys_match").judgement.verdict();
  };
  EXPECT_EQ(verdict_of(silent), Verdict::kInconclusive);
  OracleRecord& oracle = silent.evidence.oracle;
  oracle.source.tensors["lost"] = oracle.missing.at("lost");
  EXPECT_EQ(verdict_of(silent), Verdict::kPass);

  SoundEvidence legacy;
  FileTensor old = legacy.evidence.oracle.source.tensors["norm"];
  old.name = "model.rotary_emb.inv_freq";
  legacy.evidence.oracle.source.tensors[old.name] = old;
  EXPECT_EQ(JudgeOne(legacy.evidence, "loading.keys_match").judgement.verdict(), Verdict::kPass);

  SoundEvidence extra;
  extra.Stage("values", 1, "ready").tensors["x"] = extra.State("values", 1, "ready", "w");
  EXPECT_EQ(OnlyFinding(JudgeOne(extra.evidence, "loading.keys_match")).kind, "not-declared");
}

TEST(KeysMatchTest, TiedNamesHaveOneValue) {
  SoundEvidence sound;
  OracleRecord& oracle = sound.evidence.oracle;
  ASSERT_FALSE(oracle.ties.empty());
  const std::string first = oracle.ties[0][0];
  const std::string second = oracle.ties[0][1];
  oracle.source.tensors[second] = oracle.source.tensors.at(first);
  oracle.source.tensors[second].name = second;
  EXPECT_EQ(JudgeOne(sound.evidence, "loading.keys_match").judgement.verdict(), Verdict::kPass);
  oracle.source.tensors[second].digest = oracle.source.tensors.at("norm").digest;
  const Finding finding = OnlyFinding(JudgeOne(sound.evidence, "loading.keys_match"));
  EXPECT_EQ(finding.kind, "tied-differ");
  EXPECT_EQ(finding.tensor, second);
}

TEST(KeysMatchTest, DisjointKeysAreOneFindingWithAHint) {
  SoundEvidence sound;
  std::map<std::string, FileTensor> renamed;
  KeyReport report{{"lost"}, {}};
  for (auto& [name, tensor] : sound.evidence.oracle.source.tensors) {
    renamed["module." + name] = tensor;
    report.missing.push_back(name);
    report.unexpected.push_back("module." + name);
  }
  sound.evidence.oracle.source.tensors = renamed;
  for (const char* phase : {"values", "plain"}) {
    for (RankEvidence& rank : sound.Phase(phase).ranks) rank.keys = report;
  }
  const Finding finding = OnlyFinding(JudgeOne(sound.evidence, "loading.keys_match"));
  EXPECT_EQ(finding.kind, "disjoint");
  EXPECT_THAT(finding.message, HasSubstr("prefix \"module.\""));
}

TEST(EfficientEqualsPlainTest, FindsTheDifferenceAndAsksBothPhases) {
  SoundEvidence sound;
  sound.Rewrite("values", 1, "ready", "big", SetF32(1200, 5.0f));
  const Finding first = OnlyFinding(JudgeOne(sound.evidence, "loading.efficient_equals_plain"));
  ASSERT_EQ(first.wanted.size(), 2u);
  sound.Capture(first.wanted);
  const Finding finding = OnlyFinding(JudgeOne(sound.evidence, "loading.efficient_equals_plain"));
  EXPECT_EQ(finding.index, 1200u);
  EXPECT_THAT(finding.ranks, ElementsAre(1));
}

TEST(EfficientEqualsPlainTest, SkipsWithTheReasonOfThePhase) {
  SoundEvidence sound;
  sound.Phase("plain").skipped = "asked for by --quick";
  const PropertyResult result = JudgeOne(sound.evidence, "loading.efficient_equals_plain");
  EXPECT_EQ(result.judgement.verdict(), Verdict::kSkip);
  EXPECT_THAT(result.judgement.reason(), HasSubstr("--quick"));
  sound.evidence.phases.erase(sound.evidence.phases.begin() + 1);
  EXPECT_EQ(JudgeOne(sound.evidence, "loading.efficient_equals_plain").judgement.verdict(),
            Verdict::kInconclusive);
}

}  // namespace
}  // namespace shardproof::testing
