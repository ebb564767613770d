#include "src/comm/peer_reports.h"

#include <gtest/gtest.h>

namespace shardproof {
namespace {

/// Words of ranks that are all at one collective, by the ranks that each is cut off from.
Words Cut(const std::vector<std::vector<int64_t>>& cut) {
  Words words;
  for (size_t rank = 0; rank < cut.size(); ++rank) {
    words[static_cast<int64_t>(rank)] = {3, "loading", cut[rank]};
  }
  return words;
}

TEST(WordsTest, TextAndBack) {
  for (const Word& word :
       {Word{3, "broadcast from rank 0 of a, b", {1, 12}}, Word{0, "", {}}, Word{7, "a", {}, {3}},
        Word{1, "", {2}, {0, 5}}, Word{2, "b", {}, {}, std::chrono::milliseconds(5200), 4}}) {
    const Word back = WordFromText(ToText(word));
    EXPECT_EQ(back.number, word.number);
    EXPECT_EQ(back.what, word.what);
    EXPECT_EQ(back.cut, word.cut);
    EXPECT_EQ(back.missed, word.missed);
    EXPECT_EQ(back.waited, word.waited);
    EXPECT_EQ(back.order, word.order);
  }
  EXPECT_EQ(WordFromText("nonsense").number, 0);
  EXPECT_EQ(WordFromText("").what, "");
}

TEST(WordsTest, ARankThatAllConnectionsLeadToIsCutOff) {
  // In a ring only its neighbours have tried to reach it.
  const Words ring = Cut({{}, {2}, {3}, {}});
  EXPECT_EQ(WhoIsCutOff(ring, 0), "rank 2 (its connections with ranks 1, 3 are broken)");
  EXPECT_EQ(WhoIsCutOff(ring, 2), "this rank (its connections with ranks 1, 3 are broken)");
  EXPECT_EQ(WhoIsCutOff(Cut({{2}, {2}, {}, {}}), 0),
            "rank 2 (its connections with ranks 0, 1 are broken)");
}

TEST(WordsTest, WhoGaveUpBecauseOfItIsNot) {
  // Rank 3 is reset by ranks that gave up because of rank 2.
  EXPECT_EQ(WhoIsCutOff(Cut({{2}, {2}, {0, 1}, {0, 1, 2}}), 0),
            "rank 2 (its connections with ranks 0, 1, 3 are broken)");
}

TEST(WordsTest, OfSeveralThatAreAccusedTheOneThatMostAccuse) {
  // Rank 0 was reset by all that gave up before it did.
  EXPECT_EQ(WhoIsCutOff(Cut({{1, 3}, {2}, {}, {2}}), 0),
            "rank 2 (its connections with ranks 1, 3 are broken)");
}

TEST(WordsTest, OfOneConnectionEitherEndMayBe) {
  const Words words = Cut({{}, {2}, {}});
  EXPECT_EQ(WhoIsCutOff(words, 0), "the connection of ranks 1, 2");
  EXPECT_EQ(WhoIsCutOff(words, 1), "rank 2 (this rank's connection with it is broken)");
  EXPECT_EQ(WhoIsCutOff(words, 2), "rank 1 (this rank's connection with it is broken)");
}

TEST(WordsTest, OfSeveralThatHaveNothingInCommonAllAreTold) {
  EXPECT_EQ(WhoIsCutOff(Cut({{1}, {}, {3}, {}}), 1), "the connections of ranks 0, 1, 2, 3");
}

TEST(WordsTest, TwoRanksThatSayTheSameAreEnough) {
  EXPECT_TRUE(IsCutOffForCertain({{0, {3, "x", {2}}}, {1, {3, "x", {2}}}}));
  EXPECT_TRUE(IsCutOffForCertain({{0, {3, "x", {2}}}, {1, {3, "x", {2, 0}}}}));
  EXPECT_FALSE(IsCutOffForCertain({{0, {3, "x", {2}}}, {1, {3, "x", {}}}}));
  EXPECT_FALSE(IsCutOffForCertain({{0, {3, "x", {2}}}, {1, {3, "x", {0}}}}));
  EXPECT_FALSE(IsCutOffForCertain({{0, {3, "x", {2, 3}}}, {1, {3, "x", {2, 3}}}}));  // either
  EXPECT_FALSE(IsCutOffForCertain({}));
}

TEST(WordsTest, WhoWasWaitedForInVainIsTold) {
  const Words words = {
      {0, {1, "x", {}, {2}}}, {1, {1, "x", {}, {2, 3}}}, {2, {1, "x"}}, {3, {1, "x"}}};
  EXPECT_EQ(
      WhoWasMissed(words, 2),
      "this rank (ranks 0, 1 have waited for it in vain) and rank 3 (rank 1 has waited for it "
      "in vain)");
  EXPECT_EQ(WhoWasMissed({{0, {1, "x"}}, {1, {1, "x"}}}, 0), "");
}

TEST(WordsTest, NobodyIsCutOff) {
  EXPECT_EQ(WhoIsCutOff(Cut({{}, {}, {}}), 0), "");
  EXPECT_EQ(WhoIsCutOff(Cut({{0}, {}, {}}), 0), "");  // of itself a rank says nothing
}

TEST(WordsTest, WhoCameMuchLaterThanAnotherCameLate) {
  const std::chrono::milliseconds bound(1000);
  /// Of ranks that have failed in the order that is said.
  const auto late = [&](const std::vector<int64_t>& waited, const std::vector<int64_t>& order,
                        int64_t own) {
    Words words;
    for (size_t rank = 0; rank < waited.size(); ++rank) {
      words[static_cast<int64_t>(rank)] = {
          3, "loading", {}, {}, std::chrono::milliseconds(waited[rank]), order[rank]};
    }
    return WhoCameLate(words, own, bound);
  };
  EXPECT_EQ(late({5000, 4900, 20, 4500}, {1, 2, 4, 3}, 0),
            "rank 2 (it came 5.0 s after this rank)");
  EXPECT_EQ(late({5000, 4900, 20, 4500}, {1, 2, 4, 3}, 2),
            "this rank (it came 5.0 s after rank 0)");
  EXPECT_EQ(late({10, 5230, 1000}, {3, 1, 2}, 1),
            "rank 0 (it came 5.2 s after this rank) and rank 2 (it came 4.2 s after this rank)");
  EXPECT_EQ(late({1000, 20, 500}, {1, 3, 2}, 1), "");
  // Who has failed long before the others need not have come after them.
  EXPECT_EQ(late({5000, 4900, 20}, {2, 3, 1}, 0), "");
  EXPECT_EQ(late({5000, 20}, {0, 0}, 0), "");
  const std::chrono::milliseconds longer(5000);
  EXPECT_EQ(WhoCameLate({{0, {3, "a", {}, {}, longer, 1}}, {1, {4, "b", {}, {}, {}, 2}}}, 0, bound),
            "");
  EXPECT_EQ(WhoCameLate({}, 0, bound), "");
}

}  // namespace
}  // namespace shardproof
