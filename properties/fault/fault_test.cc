#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "properties/sound_evidence.h"

namespace shardproof::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(EveryRankFinishesTest, TheRootCauseComesFirst) {
  SoundEvidence sound;
  std::vector<RankEvidence>& ranks = sound.Phase("values").ranks;
  ranks[0].errors = {{"peer", "ready", "broadcast of w: connection closed by peer"}};
  ranks[0].exit = "exit 3";
  ranks[2].errors = {{"failed", "ready", "broadcast of w: Connection closed by peer [10.0.0.2]"}};
  ranks[2].exit = "exit 3";
  ranks[1].errors = {{"failed", "materialized", "allocating w: out of memory"}};
  ranks[1].exit = "exit 1";
  const PropertyResult result = JudgeOne(sound.evidence, "fault.every_rank_finishes");
  ASSERT_EQ(result.judgement.findings().size(), 2u);
  const Finding& root = result.judgement.findings()[0];
  EXPECT_THAT(root.ranks, ElementsAre(1));
  EXPECT_THAT(root.message, HasSubstr("out of memory"));
  const Finding& consequence = result.judgement.findings()[1];
  EXPECT_THAT(consequence.ranks, ElementsAre(0, 2));
  EXPECT_THAT(consequence.message, HasSubstr("consequence of what happened on rank 1"));
}

TEST(EveryRankFinishesTest, ClassesAndKinds) {
  Facts facts;
  const auto judge = [&](const std::function<void(RankEvidence&)>& change) {
    SoundEvidence sound;
    change(sound.Phase("values").ranks[1]);
    const PropertyResult result = JudgeOne(sound.evidence, "fault.every_rank_finishes");
    EXPECT_EQ(result.judgement.findings().size(), 1u);
    const Finding& finding = result.judgement.findings().at(0);
    EXPECT_THAT(finding.ranks, ElementsAre(1));
    facts = finding.facts;
    return finding.kind + "/" + finding.failure_class;
  };
  EXPECT_EQ(judge([](RankEvidence& rank) { rank.exit = "signal 9"; }), "lost/infrastructure");
  EXPECT_EQ(judge([](RankEvidence& rank) { rank.exit = "hang"; }), "hang/infrastructure");
  EXPECT_EQ(judge([](RankEvidence& rank) { rank.exit = "exit 3"; }), "exit/infrastructure");
  EXPECT_EQ(judge([](RankEvidence& rank) {
              rank.exit = "";
              rank.closed = false;
            }),
            "lost/infrastructure");
  EXPECT_EQ(judge([](RankEvidence& rank) { rank.closed = false; }), "unclosed/code");
  EXPECT_EQ(judge([](RankEvidence& rank) { rank.damage = "facts line 3"; }), "damage/verifier");
  EXPECT_EQ(judge([](RankEvidence& rank) {
              rank.errors = {{"bad-input", "built", "header"}};
              rank.exit = "exit 2";
            }),
            "error/input");
  EXPECT_EQ(facts.cause, "bad-input header");
  EXPECT_EQ(judge([](RankEvidence& rank) {
              rank.errors = {{"subject", "built", "KeyError: 'w' (s.py:7)", "KeyError"}};
              rank.exit = "exit 1";
            }),
            "error/code");
  EXPECT_EQ(facts.raised, "KeyError");
  EXPECT_EQ(facts.exit, "exit 1");
  EXPECT_EQ(facts.cause, "subject KeyError");
  judge([](RankEvidence& rank) { rank.exit = "signal 9 (out of memory: limit 16 MiB)"; });
  EXPECT_EQ(facts.cause, "signal 9");
}

TEST(EveryRankFinishesTest, ARankThatLeftNothingIsLost) {
  SoundEvidence sound;
  sound.Phase("values").ranks.pop_back();
  const PropertyResult result = JudgeOne(sound.evidence, "fault.every_rank_finishes");
  ASSERT_EQ(result.judgement.findings().size(), 1u);
  EXPECT_THAT(result.judgement.findings()[0].ranks, ElementsAre(2));
}

TEST(EveryFaultFiresTest, AFaultThatNeverFiredIsInconclusive) {
  SoundEvidence sound;
  sound.evidence.test_case.faults = {{"disk/enospc", "rank=1"}};
  const PropertyResult result = JudgeOne(sound.evidence, "fault.every_fault_fires");
  EXPECT_EQ(result.judgement.verdict(), Verdict::kInconclusive);
  EXPECT_THAT(result.judgement.reason(), HasSubstr("disk/enospc@rank=1 never fired"));
}

TEST(EveryFaultFiresTest, OfAStageThatIsNotReachedItSaysWhichAre) {
  SoundEvidence sound;
  sound.evidence.test_case.faults = {{"rank/stop", "1@no-such-stage"}};
  const PropertyResult result = JudgeOne(sound.evidence, "fault.every_fault_fires");
  EXPECT_THAT(result.judgement.reason(), HasSubstr("; stages that were reached: "));
  for (const StageRecord& stage : sound.Phase("values").ranks[0].stages) {
    EXPECT_THAT(result.judgement.reason(), HasSubstr(stage.name));
  }
}

/// What is found where a byte of tied tensors is damaged and each rank ends saying `error`.
std::vector<std::string> KindsOfDamage(const std::string& error,
                                       const std::vector<FaultRecord>& more = {}) {
  SoundEvidence sound;
  sound.evidence.test_case.faults = {{"file/rot", "7"}};
  auto& ranks = sound.Phase("values").ranks;
  for (RankEvidence& rank : ranks) {
    std::erase_if(rank.stages, [](const StageRecord& stage) { return stage.name == "restored"; });
    rank.errors = {{"bad-input", "restored", error}};
  }
  ranks[0].faults = {{.id = "file/rot",
                      .where = "7",
                      .detail = "bit 0 of byte 9 of d/f, of tensor 'v' and 'w'",
                      .model = "recover",
                      .file = "d/f",
                      .byte = 9,
                      .tensors = {"v", "w"}}};
  ranks[1].faults = more;
  const PropertyResult result = JudgeOne(sound.evidence, "fault.damage_recovered");
  EXPECT_GT(result.judgement.comparisons(), 0u);
  std::vector<std::string> kinds;
  for (const Finding& finding : result.judgement.findings()) kinds.push_back(finding.kind);
  return kinds;
}

TEST(DamageRecoveredTest, EachNameOfWhatIsDamagedWillDo) {
  EXPECT_THAT(KindsOfDamage("tensor 'v' in 'f': another digest"), ElementsAre());
  EXPECT_THAT(KindsOfDamage("tensor 'w' in 'f': another digest"), ElementsAre());
  EXPECT_THAT(KindsOfDamage("tensor 'w' in : another digest"), ElementsAre("not-named"));
  EXPECT_THAT(KindsOfDamage("tensor 'x' in 'f': another digest"), ElementsAre("not-named"));
  EXPECT_THAT(KindsOfDamage("tensor 'vw' in 'f': another digest"), ElementsAre("not-named"));
  EXPECT_THAT(KindsOfDamage("tensor 'w' in 'f' is wrong"), ElementsAre("not-named"));
}

TEST(DamageRecoveredTest, WhoHasEndedByAnotherFaultNeedNotTell) {
  EXPECT_THAT(KindsOfDamage("", {{"rank/kill", "1@saved", "at stage saved", "end-the-run"}}),
              ElementsAre());
  EXPECT_THAT(KindsOfDamage("", {{"file/slow", "0:1", "write 0", "go-on"}}),
              ElementsAre("not-named"));
}

/// Three ranks, of which a call of rank 1 failed, or rank 1 was lost, and what each of them says.
class Struck {
 public:
  Struck(const std::string& model, const std::string& detail) {
    sound_.evidence.test_case.faults = {{"some/fault", "0:1"}};
    Ranks()[1].faults = {{"some/fault", "0:1", detail, model}};
  }
  std::vector<RankEvidence>& Ranks() { return sound_.Phase("values").ranks; }
  /// \param error  what the call failed with, as the fault's record has it
  Struck& InSubject(const std::string& error) {
    sound_.evidence.test_case.subject = "mine";
    Ranks()[1].faults[0].error = error;
    return *this;
  }
  Struck& Says(size_t rank, const std::string& code, const std::string& message) {
    Ranks()[rank].errors = {{code, "ready", message}};
    Ranks()[rank].exit = "exit 1";
    return *this;
  }
  std::vector<std::string> Kinds() const {
    const PropertyResult result = JudgeOne(sound_.evidence, "fault.ends_as_stated");
    std::vector<std::string> kinds;
    for (const Finding& finding : result.judgement.findings()) kinds.push_back(finding.kind);
    EXPECT_EQ(result.judgement.verdict(), kinds.empty() ? Verdict::kPass : Verdict::kFail);
    EXPECT_GT(result.judgement.comparisons(), 0u);
    return kinds;
  }

 private:
  SoundEvidence sound_;
};

constexpr const char* kFull = "writing 96 bytes at offset 0 of f: No space left on device";

Struck FullDisk() {
  Struck struck("abort", kFull);
  struck.Says(1, "failed", std::string("saving tensor 'w': ") + kFull);
  for (const size_t rank : {0, 2}) {
    struck.Says(rank, "peer", std::string("saving: rank 1 failed: saving tensor 'w': ") + kFull);
  }
  return struck;
}

TEST(EndsAsStatedTest, AFailureThatEveryRankTells) {
  EXPECT_THAT(FullDisk().Kinds(), ElementsAre());
  Struck unharmed("abort", kFull);  // nobody fails: nothing came of it
  EXPECT_THAT(unharmed.Kinds(), ElementsAre());
}

TEST(EndsAsStatedTest, WhatIsMissingInAnError) {
  EXPECT_THAT(FullDisk().Says(0, "peer", "saving: rank 1 failed: ").Kinds(),
              ElementsAre("not-named"));
  EXPECT_THAT(FullDisk().Says(0, "peer", std::string("saving: rank 11 failed: ") + kFull).Kinds(),
              ElementsAre("not-named"));
  EXPECT_THAT(FullDisk().Says(0, "peer", std::string("saving: ") + kFull).Kinds(),
              ElementsAre("not-named"));
  EXPECT_THAT(FullDisk().Says(1, "failed", "saving failed").Kinds(), ElementsAre("not-named"));
}

TEST(EndsAsStatedTest, RanksThatEndOtherwise) {
  const auto kinds = [](const std::string& exit, bool says) {
    Struck struck = FullDisk();
    if (!says) struck.Ranks()[2].errors.clear();
    struck.Ranks()[2].exit = exit;
    return struck.Kinds();
  };
  EXPECT_THAT(kinds("ok", false), ElementsAre("not-told"));
  EXPECT_THAT(kinds("exit 1", false), ElementsAre("silent"));
  EXPECT_THAT(kinds("hang", true), ElementsAre("hang"));
  EXPECT_THAT(kinds("signal 11", true), ElementsAre("lost"));
}

TEST(EndsAsStatedTest, ARankThatIsLostIsNamedWithWhatWaitedForIt) {
  const auto lost = [](const std::string& message) {
    Struck struck("end-the-run", "at stage ready");
    struck.Ranks()[1].exit = "signal 9";
    for (const size_t rank : {0, 2}) {
      struck.Ranks()[rank].collectives = {{0, "broadcast", 0, "U8", 8, {"w"}}};
      struck.Says(rank, "peer", message);
    }
    return struck.Kinds();
  };
  EXPECT_THAT(lost("lost rank 1 (its process 7 is gone): broadcast from rank 0 of w: closed"),
              ElementsAre());
  EXPECT_THAT(lost("broadcast from rank 0 of w: closed"), ElementsAre("not-named"));
  EXPECT_THAT(lost("lost rank 1 (its process 7 is gone)"), ElementsAre("not-named"));
}

TEST(EndsAsStatedTest, WhatBecameOfARankIsTold) {
  const auto told = [](const std::string& fault, const std::string& who) {
    Struck struck("end-the-run", "at stage ready");
    struck.Ranks()[1].exit = "signal 9";
    struck.Ranks()[1].faults[0].id = fault;
    for (RankEvidence& rank : struck.Ranks()) rank.process_id = 40 + rank.rank;
    for (const size_t rank : {0, 2}) {
      struck.Ranks()[rank].collectives = {{0, "broadcast", 0, "U8", 8, {"w"}}};
      struck.Says(rank, "peer", "lost " + who + ": broadcast of w: closed");
    }
    return struck.Kinds();
  };
  EXPECT_THAT(told("rank/kill", "rank 1 (its process 41 is gone)"), ElementsAre());
  EXPECT_THAT(told("rank/stop", "rank 1 (its process 41 is stopped)"), ElementsAre());
  EXPECT_THAT(told("rank/kill", "rank 1 (its connections with ranks 0, 2 are broken)"),
              ElementsAre());
  const std::string gone = "rank 1 (its process 41 is gone)";
  for (const std::string& who :
       {std::string("rank 1 (it does not answer)"), std::string("rank 1 (its process 4 is gone)"),
        std::string("rank 1 (its process 41 is stopped)"),
        gone + " and rank 2 (its process 42 is gone)",
        gone + " and rank 2 (it has left after 5 collectives)",
        gone + " and rank 7 (it is late)"}) {
    EXPECT_THAT(told("rank/kill", who), ElementsAre("wrong-cause")) << who;
  }
}

TEST(EndsAsStatedTest, RanksAreNamedInListsToo) {
  const auto kinds = [](const std::string& who) {
    return FullDisk().Says(0, "peer", who + " failed: " + kFull).Kinds();
  };
  for (const char* who : {"ranks 0, 1", "ranks 1, 2", "ranks 10, 1 and more", "rank 1"}) {
    EXPECT_THAT(kinds(who), ElementsAre()) << who;
  }
  for (const char* who :
       {"ranks 0, 2", "ranks 10, 11", "rank1", "ranks", "rank ", "ranks 2 and 1"}) {
    EXPECT_THAT(kinds(who), ElementsAre("not-named")) << who;
  }
}

TEST(EndsAsStatedTest, WhatOnlyHoldsUpEndsNobody) {
  Struck slow("go-on", "late");
  EXPECT_THAT(slow.Kinds(), ElementsAre());
  EXPECT_THAT(slow.Says(0, "peer", "lost rank 1: w").Kinds(), ElementsAre("ended"));
}

TEST(EndsAsStatedTest, ARankThatIsCutOffEndsAndTellsAsTheOthersDo) {
  const auto kinds = [](const std::function<void(Struck&)>& change) {
    Struck struck("tell-all", "at stage ready");
    for (const size_t rank : {0, 1, 2}) {
      struck.Ranks()[rank].collectives = {{0, "broadcast", 0, "U8", 8, {"w"}}};
      struck.Says(rank, "peer",
                  rank == 1 ? "lost this rank (its connections): w: late"
                            : "lost rank 1 (its connections): w: late");
    }
    change(struck);
    return struck.Kinds();
  };
  EXPECT_THAT(kinds([](Struck&) {}), ElementsAre());
  EXPECT_THAT(kinds([](Struck& struck) { struck.Ranks()[1].exit = "hang"; }), ElementsAre("hang"));
  EXPECT_THAT(kinds([](Struck& struck) { struck.Says(1, "peer", "w: late; all ranks answer"); }),
              ElementsAre("not-named"));
  EXPECT_THAT(kinds([](Struck& struck) { struck.Says(2, "peer", "lost rank 0: w: late"); }),
              ElementsAre("not-named"));
  EXPECT_THAT(kinds([](Struck& struck) {
                struck.Ranks()[2].errors.clear();
                struck.Ranks()[2].exit = "ok";
              }),
              ElementsAre("not-told"));
}

TEST(EndsAsStatedTest, ABrokenConnectionHasARankAtAnEndThatIsCutOff) {
  const auto told = [](const std::string& who) {
    Struck struck("tell-all", "at stage ready");
    for (const size_t rank : {0, 1, 2}) {
      struck.Ranks()[rank].collectives = {{0, "broadcast", 0, "U8", 8, {"w"}}};
      struck.Says(rank, "peer",
                  "lost rank 1 (its connections with ranks 0, 2 are broken): w: late");
    }
    return struck.Says(2, "peer", "lost " + who + ": w: late").Kinds();
  };
  EXPECT_THAT(told("rank 0 (its connections with ranks 1, 2 are broken)"), ElementsAre());
  EXPECT_THAT(told("rank 1 (its connections with rank 0 are broken)"), ElementsAre());
  const std::string cut = "rank 1 (its connections with ranks 0, 2 are broken)";
  EXPECT_THAT(told(cut + " and rank 0 (its connections with rank 2 are broken)"),
              ElementsAre("wrong-cause"));
  EXPECT_THAT(told(cut + " and this rank (its connections with rank 0 are broken)"),
              ElementsAre("wrong-cause"));
  EXPECT_THAT(told(cut + " and rank 0 (its process 7 is gone)"), ElementsAre("wrong-cause"));
}

TEST(EndsAsStatedTest, OfASubjectTheWordsOfTheErrorAreEnough) {
  const auto kinds = [](const std::string& of_others) {
    Struck struck("abort", "writing 4 bytes to f: No space left on device");
    struck.InSubject("No space left on device")
        .Says(1, "subject", "OSError: [Errno 28] No space left on device");
    return struck.Says(0, "subject", of_others).Says(2, "subject", of_others).Kinds();
  };
  EXPECT_THAT(kinds("rank 1: OSError: [Errno 28] No space left on device"), ElementsAre());
  EXPECT_THAT(kinds("rank 1: OSError"), ElementsAre("not-named"));
  EXPECT_THAT(kinds("rank 2: No space left on device"), ElementsAre("not-named"));
}

TEST(EndsAsStatedTest, ARecordThatDoesNotSayWhatTheCallFailedWithIsNotGuessedAt) {
  SoundEvidence sound;
  sound.evidence.test_case.faults = {{"some/fault", "0:1"}};
  sound.evidence.test_case.subject = "mine";
  auto& ranks = sound.Phase("values").ranks;
  ranks[1].faults = {{"some/fault", "0:1", "writing 4 bytes to f: No space left", "abort"}};
  for (RankEvidence& rank : ranks) {
    rank.errors = {{"subject", "ready", "OSError"}};
    rank.exit = "exit 1";
  }
  EXPECT_EQ(JudgeOne(sound.evidence, "fault.ends_as_stated").judgement.verdict(),
            Verdict::kInconclusive);
}

TEST(EndsAsStatedTest, ARankThatMayFailInAnyWay) {
  const auto kinds = [](const std::string& exit, const std::string& of_others) {
    Struck struck("end-in-time", "operator new 7 of rank 1");
    struck.Ranks()[1].exit = exit;
    if (!of_others.empty()) struck.Says(0, "peer", of_others).Says(2, "peer", of_others);
    return struck.Kinds();
  };
  for (const char* exit : {"signal 6", "exit 1", "exit 5", "ok"}) {
    EXPECT_THAT(kinds(exit, ""), ElementsAre()) << exit;
  }
  EXPECT_THAT(kinds("signal 6", "lost rank 1: agreeing"), ElementsAre());
  EXPECT_THAT(kinds("signal 6", "lost rank 2: agreeing"), ElementsAre("not-named"));
  EXPECT_THAT(kinds("hang", "lost rank 1: agreeing"), ElementsAre("hang"));
  EXPECT_THAT(kinds("signal 11", "lost rank 1: agreeing"), ElementsAre("lost"));
  EXPECT_THAT(kinds("ok", "lost rank 1: agreeing"), ElementsAre("ended"));
}

TEST(NothingLostTest, WhatLiesThere) {
  bool ended_well = false;
  const auto kinds = [&](Phase phase, const std::function<void(LeftRecord&)>& change) {
    SoundEvidence sound;
    sound.evidence.test_case.faults = {{"some/fault", "0"}};
    PhaseEvidence after = sound.Phase("values");
    after.phase = Phase::kAfter;
    sound.Phase("values").ranks[1].faults = {{"some/fault", "0", "", "abort"}};
    for (RankEvidence& rank : sound.Phase("values").ranks) {
      rank.stages.push_back({.name = "saved", .complete = true});
    }
    if (!ended_well) sound.Phase("values").ranks[1].errors = {{"failed", "saved", "no space"}};
    sound.evidence.phases.push_back(after);
    const LeftCheckpoint old{.is_previous = true, .content = "old"}, made{.content = "made"};
    auto& left = sound.evidence.oracle.left;
    left[Phase::kUndisturbed] = {.checkpoints = {made}};
    left[Phase::kValues] = {.had_previous = true, .checkpoints = {old}, .drafts = {"x.saving"}};
    left[Phase::kAfter] = {.had_previous = true, .checkpoints = {made}};
    change(left[phase]);
    const PropertyResult result = JudgeOne(sound.evidence, "fault.nothing_lost");
    std::vector<std::string> found;
    for (const Finding& finding : result.judgement.findings()) found.push_back(finding.kind);
    EXPECT_GT(result.judgement.comparisons(), 4u);
    return found;
  };
  EXPECT_THAT(kinds(Phase::kValues, [](LeftRecord&) {}), ElementsAre());
  EXPECT_THAT(kinds(Phase::kValues, [](LeftRecord& left) { left.checkpoints.clear(); }),
              ElementsAre("lost"));
  EXPECT_THAT(
      kinds(Phase::kValues, [](LeftRecord& left) { left.checkpoints[0].damage = {"w is gone"}; }),
      ElementsAre("damaged"));
  EXPECT_THAT(
      kinds(Phase::kValues, [](LeftRecord& left) { left.checkpoints = {{.content = "other"}}; }),
      ElementsAre("differs"));
  EXPECT_THAT(kinds(Phase::kValues, [](LeftRecord& left) { left.latest = "step-00000007"; }),
              ElementsAre("latest"));
  EXPECT_THAT(kinds(Phase::kAfter, [](LeftRecord& left) { left.drafts = {"x.saving"}; }),
              ElementsAre("draft"));
  EXPECT_THAT(
      kinds(Phase::kAfter, [](LeftRecord& left) { left.checkpoints[0].is_previous = true; }),
      ElementsAre("not-saved"));
  ended_well = true;
  EXPECT_THAT(kinds(Phase::kValues, [](LeftRecord&) {}), ElementsAre("not-saved"));
  EXPECT_THAT(
      kinds(Phase::kValues, [](LeftRecord& left) { left.checkpoints = {{.content = "made"}}; }),
      ElementsAre());
}

TEST(NothingLeaksTest, WhatARankStillHolds) {
  SoundEvidence sound;
  sound.evidence.test_case.faults = {{"some/fault", "0"}};
  for (RankEvidence& rank : sound.Phase("values").ranks) rank.leaks.emplace();
  EXPECT_EQ(JudgeOne(sound.evidence, "fault.nothing_leaks").judgement.verdict(), Verdict::kPass);
  sound.Phase("values").ranks[2].leaks = {"descriptor of /tmp/f"};
  const PropertyResult result = JudgeOne(sound.evidence, "fault.nothing_leaks");
  ASSERT_EQ(result.judgement.findings().size(), 1u);
  EXPECT_THAT(result.judgement.findings()[0].ranks, ElementsAre(2));
  EXPECT_THAT(result.judgement.findings()[0].message, HasSubstr("descriptor of /tmp/f"));
}

TEST(AfterEqualsUndisturbedTest, FactsAreComparedRankByRank) {
  SoundEvidence sound;
  sound.evidence.test_case.faults = {{"some/fault", "0"}};
  for (const Phase each : {Phase::kAfter, Phase::kUndisturbed}) {
    PhaseEvidence phase = sound.Phase("values");
    phase.phase = each;
    sound.evidence.phases.push_back(phase);
  }
  const auto judge = [&] { return JudgeOne(sound.evidence, "fault.after_equals_undisturbed"); };
  EXPECT_EQ(judge().judgement.verdict(), Verdict::kPass);
  EXPECT_EQ(judge().judgement.comparisons(), 3u);
  sound.Phase("after").ranks[1].facts = Digest(1, 2);
  const PropertyResult result = judge();
  ASSERT_EQ(result.judgement.findings().size(), 1u);
  EXPECT_THAT(result.judgement.findings()[0].ranks, ElementsAre(1));
  sound.Phase("undisturbed").ranks[2].closed = false;
  sound.Phase("after").ranks[1].facts = {};
  EXPECT_EQ(judge().judgement.verdict(), Verdict::kInconclusive);
}

TEST(AsStatedTest, NothingButFaultsIsJudgedAndNotHowTheStruckPhaseEnds) {
  SoundEvidence sound;
  sound.evidence.test_case.faults = {{"some/fault", "0"}};
  sound.evidence.test_case.as_stated = true;
  RankEvidence& lost = sound.Phase("values").ranks[1];
  lost.faults = {{"some/fault", "0", "at stage ready", "end-the-run"}};
  lost.exit = "signal 9";
  EXPECT_EQ(JudgeOne(sound.evidence, "loading.equals_source").judgement.verdict(), Verdict::kSkip);
  EXPECT_THAT(JudgeOne(sound.evidence, "fault.every_rank_finishes").judgement.findings(),
              IsEmpty());
  sound.evidence.test_case.as_stated = false;
  EXPECT_EQ(JudgeOne(sound.evidence, "fault.every_rank_finishes").judgement.findings().size(), 1u);
}

}  // namespace
}  // namespace shardproof::testing
