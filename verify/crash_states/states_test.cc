// Tiny recordings, and by hand all states that each model leaves of them. Blocks have 4 bytes.
#include "verify/crash_states/states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verify/crash_states/fixture_operations.h"

namespace shardproof::crash {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr CrashModel kKill = CrashModel::kKill;
constexpr CrashModel kExt4 = CrashModel::kExt4Ordered;
constexpr CrashModel kPosix = CrashModel::kPosix;

const Operations& Replacing() {
  static const Operations operations = {Create("b"), Write("b", 0, "12345678"), Rename("b", "a")};
  return operations;
}

Disk WithOld() { return DiskOf({Create("a"), Write("a", 0, "old")}); }

TEST(KillStates, ArePrefixesWithTheNextWriteTorn) {
  EXPECT_THAT(Texts(kKill, WithOld(), Replacing(), SmallBlocks()),
              UnorderedElementsAre("a: old\n", "a: old\nb: \n", "a: old\nb: 1234\n",
                                   "a: old\nb: 12345678\n", "a: 12345678\n"));
}

TEST(KillStates, TearAtBlocksOfTheFileNotOfTheWrite) {
  EXPECT_THAT(Texts(kKill, DiskOf({Create("a")}), {Write("a", 2, "123456")}, SmallBlocks()),
              UnorderedElementsAre("a: \n", "a: \\0\\012\n", "a: \\0\\0123456\n"));
}

TEST(KillStates, TearALongWriteAtTheFirstAndTheLastBlockAndSomeBetween) {
  StateOptions options = SmallBlocks();
  options.tears_max = 3;
  const std::set<std::string> texts =
      Texts(kKill, DiskOf({Create("a")}), {Write("a", 0, "aaaabbbbccccddddeeeeffff")}, options);
  EXPECT_THAT(texts,
              UnorderedElementsAre("a: \n", "a: aaaa\n", "a: aaaabbbbcccc\n",
                                   "a: aaaabbbbccccddddeeee\n", "a: aaaabbbbccccddddeeeeffff\n"));
}

TEST(KillStates, SayWhatWasUnderWay) {
  StateOptions options = SmallBlocks();
  options.models = {kKill};
  std::vector<std::string> torn;
  ASSERT_TRUE(VisitStates(WithOld(), Replacing(), options, [&](const CrashState& state) {
                if (state.in_flight) torn.push_back(std::to_string(state.after) + " " + state.what);
                return Ok();
              }).ok());
  EXPECT_THAT(torn, UnorderedElementsAre("1 torn: write of bytes [0, 8) of b at 4"));
}

TEST(Ext4States, ARenameOverAFileBringsItsBytes) {
  EXPECT_THAT(Texts(kExt4, WithOld(), Replacing(), SmallBlocks()),
              UnorderedElementsAre("a: old\n", "a: old\nb: \n", "a: old\nb: 1234\n",
                                   "a: old\nb: 12345678\n", "a: 12345678\n"));
}

TEST(Ext4States, ARenameToANewNameDoesNot) {
  const Operations operations = {Create("b"), Write("b", 0, "12345678"), Rename("b", "c")};
  EXPECT_THAT(Texts(kExt4, Disk(), operations, SmallBlocks()),
              UnorderedElementsAre("", "b: \n", "b: 1234\n", "b: 12345678\n", "c: \n", "c: 1234\n",
                                   "c: 12345678\n"));
}

TEST(Ext4States, AnExchangeDoesNot) {
  const Operations operations = {Create("b"), Write("b", 0, "1234"), Exchange("a", "b")};
  EXPECT_THAT(Texts(kExt4, WithOld(), operations, SmallBlocks()),
              UnorderedElementsAre("a: old\n", "a: old\nb: \n", "a: old\nb: 1234\n",
                                   "a: \nb: old\n", "a: 1234\nb: old\n"));
}

TEST(Ext4States, WhatWasNotWrittenBackOfASizedFileIsZeros) {
  const Operations operations = {Create("b"), Truncate("b", 8), Write("b", 0, "1234"),
                                 Write("b", 4, "5678")};
  EXPECT_THAT(Texts(kExt4, Disk(), operations, SmallBlocks()),
              UnorderedElementsAre("", "b: \n", "b: \\0\\0\\0\\0\\0\\0\\0\\0\n",
                                   "b: 1234\\0\\0\\0\\0\n", "b: 12345678\n"));
}

TEST(Ext4States, ASyncCommitsAllThatWasDoneUpToTheLastChangeOfWhatIsSynced) {
  const Operations operations = {Create("a"), Create("b"), Write("b", 0, "1"), SyncFile("b")};
  EXPECT_THAT(Texts(kExt4, Disk(), operations, SmallBlocks(), 4),
              UnorderedElementsAre("a: \nb: 1\n"));
  // What was done to others later may not be in the transaction that it waits for.
  const Operations late = {Create("a"), Write("a", 0, "1"), Create("b"), SyncFile("a")};
  EXPECT_THAT(Texts(kExt4, Disk(), late, SmallBlocks(), 4),
              UnorderedElementsAre("a: 1\n", "a: 1\nb: \n"));
}

TEST(Ext4States, AnOverwriteMayBeThereBeforeTheNamesThatWereChangedEarlier) {
  const Operations operations = {Create("b"), Write("a", 0, "new")};
  EXPECT_THAT(Texts(kExt4, WithOld(), operations, SmallBlocks()),
              UnorderedElementsAre("a: old\n", "a: new\n", "a: old\nb: \n", "a: new\nb: \n"));
  // One that needs a new block may not.
  const Operations longer = {Create("b"), Write("a", 0, "newer")};
  EXPECT_THAT(
      Texts(kExt4, WithOld(), longer, SmallBlocks()),
      UnorderedElementsAre("a: old\n", "a: old\nb: \n", "a: newe\nb: \n", "a: newer\nb: \n"));
}

TEST(Ext4States, AFileThatIsCutToNothingAndWrittenAnewIsEmptyInBetween) {
  const Operations operations = {Truncate("a", 0), Write("a", 0, "new"), Create("b"),
                                 SyncDirectory("")};
  EXPECT_THAT(Texts(kExt4, WithOld(), operations, SmallBlocks()),
              UnorderedElementsAre("a: old\n", "a: \n", "a: new\n", "a: new\nb: \n"));
}

TEST(PosixStates, AreEveryBlockSizeAndNameAsOfSomeMoment) {
  const Operations operations = {Create("b"), Write("b", 0, "12345678"), SyncFile("b"),
                                 Rename("b", "c")};
  EXPECT_THAT(
      Texts(kPosix, Disk(), operations, SmallBlocks()),
      UnorderedElementsAre("", "b: \n", "b: 12345678\n", "b: 1234\n", "b: \\0\\0\\0\\05678\n",
                           "b: \\0\\0\\0\\0\n", "b: 1234\\0\\0\\0\\0\n",
                           "b: \\0\\0\\0\\0\\0\\0\\0\\0\n", "c: 12345678\n"));
  EXPECT_THAT(Texts(kPosix, Disk(), operations, SmallBlocks(), 4),
              UnorderedElementsAre("", "b: 12345678\n", "c: 12345678\n"));
}

TEST(PosixStates, ASyncedDirectoryHasItsNamesAndNoBytes) {
  const Operations operations = {Create("b"), Write("b", 0, "1"), SyncDirectory("")};
  EXPECT_THAT(Texts(kPosix, Disk(), operations, SmallBlocks(), 3),
              UnorderedElementsAre("b: \n", "b: \\0\n", "b: 1\n"));
}

TEST(PosixStates, AChangeOfANameIsLostWithTheEarlierOnes) {
  // a goes away and comes back: the new one is there only if the old one was gone.
  const Operations operations = {Unlink("a"), Create("a"), Create("c")};
  EXPECT_THAT(
      Texts(kPosix, WithOld(), operations, SmallBlocks()),
      UnorderedElementsAre("a: old\n", "", "a: \n", "a: old\nc: \n", "c: \n", "a: \nc: \n"));
}

TEST(PosixStates, ARenameWithinADirectoryIsWholeOrLost) {
  EXPECT_THAT(Texts(kPosix, WithOld(), {Rename("a", "b")}, SmallBlocks()),
              UnorderedElementsAre("a: old\n", "b: old\n"));
  const Disk two = DiskOf({Create("a"), Write("a", 0, "1"), Create("b"), Write("b", 0, "2")});
  EXPECT_THAT(Texts(kPosix, two, {Exchange("a", "b")}, SmallBlocks()),
              UnorderedElementsAre("a: 1\nb: 2\n", "a: 2\nb: 1\n"));
}

TEST(PosixStates, ASecondRenameIsLostWithTheFirst) {
  // Never the file by two names, or by none.
  EXPECT_THAT(Texts(kPosix, WithOld(), {Rename("a", "b"), Rename("b", "c")}, SmallBlocks()),
              UnorderedElementsAre("a: old\n", "b: old\n", "c: old\n"));
}

TEST(PosixStates, TheHalvesOfARenamePartWhereOneDirectoryIsSynced) {
  const Disk before = DiskOf({MakeDirectory("x"), MakeDirectory("y"), Create("x/a")});
  const Operations none = {Rename("x/a", "y/a")};
  EXPECT_THAT(Texts(kPosix, before, none, SmallBlocks()),
              UnorderedElementsAre("x/\nx/a: \ny/\n", "x/\ny/\ny/a: \n"));
  const Operations target = {Rename("x/a", "y/a"), SyncDirectory("y")};
  EXPECT_THAT(Texts(kPosix, before, target, SmallBlocks(), 2),
              UnorderedElementsAre("x/\ny/\ny/a: \n", "x/\nx/a: \ny/\ny/a: \n"));
  const Operations source = {Rename("x/a", "y/a"), SyncDirectory("x")};
  EXPECT_THAT(Texts(kPosix, before, source, SmallBlocks(), 2),
              UnorderedElementsAre("x/\ny/\n", "x/\ny/\ny/a: \n"));
  const Operations both = {Rename("x/a", "y/a"), SyncDirectory("x"), SyncDirectory("y")};
  EXPECT_THAT(Texts(kPosix, before, both, SmallBlocks(), 3),
              UnorderedElementsAre("x/\ny/\ny/a: \n"));
}

TEST(PosixStates, ALostCreateDoesNotTakeWhatASyncedDirectoryNames) {
  const Disk before = DiskOf({MakeDirectory("t")});
  const Operations operations = {Create("t/x"), Write("t/x", 0, "1"), SyncFile("t/x"),
                                 Rename("t/x", "y"), SyncDirectory("")};
  EXPECT_THAT(Texts(kPosix, before, operations, SmallBlocks(), 5),
              UnorderedElementsAre("t/\ny: 1\n", "t/\nt/x: 1\ny: 1\n"));
}

TEST(PosixStates, WhatNeedsALostDirectoryIsLost) {
  const Disk before = DiskOf({Create("a")});
  const Operations operations = {MakeDirectory("d"), Rename("a", "d/a")};
  // Never: a gone from the root, and d not there.
  EXPECT_THAT(Texts(kPosix, before, operations, SmallBlocks()),
              UnorderedElementsAre("a: \n", "a: \nd/\n", "d/\nd/a: \n"));
}

TEST(PosixStates, ADirectoryGoesWithTheLastNameInIt) {
  const Disk before = DiskOf({MakeDirectory("d"), Create("d/a")});
  const Operations operations = {Rename("d/a", "a"), RemoveDirectory("d")};
  EXPECT_THAT(Texts(kPosix, before, operations, SmallBlocks()),
              UnorderedElementsAre("d/\nd/a: \n", "a: \nd/\n", "a: \n"));
}

TEST(PosixStates, ABlockHasAllEarlierWritesToIt) {
  const Operations operations = {Truncate("a", 4), SyncFile("a"), Write("a", 0, "12"),
                                 Write("a", 2, "34")};
  EXPECT_THAT(Texts(kPosix, DiskOf({Create("a")}), operations, SmallBlocks(), 4),
              UnorderedElementsAre("a: \\0\\0\\0\\0\n", "a: 12\\0\\0\n", "a: 1234\n"));
}

TEST(PosixStates, WithoutTheCutNothingThatWasWrittenBehindIt) {
  const Operations operations = {Truncate("a", 0), Write("a", 0, "n")};
  EXPECT_THAT(Texts(kPosix, WithOld(), operations, SmallBlocks()),
              UnorderedElementsAre("a: old\n", "a: \n", "a: n\n", "a: \\0\n"));
}

TEST(States, SayWhatWasLost) {
  StateOptions options = SmallBlocks();
  options.models = {kPosix};
  std::set<std::string> lines;
  const Operations operations = {Create("b"), Write("b", 0, "12345678")};
  ASSERT_TRUE(VisitStates(Disk(), operations, options, [&](const CrashState& state) {
                lines.insert(state.what);
                return Ok();
              }).ok());
  EXPECT_THAT(lines, Contains("nothing lost"));
  EXPECT_THAT(lines, Contains("lost: create of b"));
  EXPECT_THAT(lines, Contains("lost: write of bytes [0, 8) of b"));
  EXPECT_THAT(lines, Contains("torn: write of bytes [0, 8) of b without [4, 8)"));
  EXPECT_THAT(lines,
              Contains("lost: the size behind 0 bytes that write of bytes [0, 8) of b gave"));
}

TEST(States, OfManyLossesTheSingleOnesAreThereAndTheSameSeedGivesTheSame) {
  Operations operations;
  for (int i = 0; i < 12; ++i) operations.push_back(Create(std::string(1, 'a' + i)));
  StateOptions options;
  options.combinations_max = 40;
  const std::set<std::string> texts = Texts(kPosix, Disk(), operations, options, 12);
  const std::string all = DiskOf(operations).Text();
  EXPECT_THAT(texts, Contains(""));
  EXPECT_THAT(texts, Contains(all));
  for (size_t i = 0; i < operations.size(); ++i) {
    std::string without = all;
    EXPECT_THAT(texts, Contains(without.erase(4 * i, 4)));
    EXPECT_THAT(texts, Contains(all.substr(4 * i, 4)));
  }
  EXPECT_EQ(texts, Texts(kPosix, Disk(), operations, options, 12));
  options.seed = 2;
  EXPECT_NE(texts, Texts(kPosix, Disk(), operations, options, 12));
}

TEST(States, OfManyCrashPointsThoseBehindNamesAndSyncsComeFirst) {
  Operations operations = {Create("a")};
  for (int i = 0; i < 20; ++i) operations.push_back(Write("a", 0, std::to_string(i)));
  operations.push_back(SyncFile("a"));
  operations.push_back(Rename("a", "b"));
  StateOptions options = SmallBlocks();
  options.models = {kExt4, kPosix};
  options.points_max = 6;
  std::set<int64_t> points;
  ASSERT_TRUE(VisitStates(Disk(), operations, options, [&](const CrashState& state) {
                points.insert(state.after);
                return Ok();
              }).ok());
  EXPECT_THAT(points, UnorderedElementsAre(0, 1, 2, 12, 22, 23));
}

TEST(States, AreCountedAndEqualOnesMetOnce) {
  int64_t visits = 0;
  const auto counts = VisitStates(WithOld(), Replacing(), SmallBlocks(), [&](const CrashState&) {
    ++visits;
    return Ok();
  });
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts.value().distinct, visits);
  EXPECT_GT(counts.value().made, visits);
}

TEST(States, EndWithTheVisitorsError) {
  const auto counts = VisitStates(WithOld(), Replacing(), {},
                                  [](const CrashState&) -> Status { return Failed("enough"); });
  ASSERT_FALSE(counts.ok());
  EXPECT_EQ(counts.error().message, "enough");
}

TEST(States, RefuseWhatDoesNotFit) {
  const auto nothing = [](const CrashState&) { return Ok(); };
  const auto counts = VisitStates(Disk(), {Unlink("a")}, {}, nothing);
  ASSERT_FALSE(counts.ok());
  EXPECT_THAT(counts.error().message, HasSubstr("unlink of a"));
  StateOptions options;
  options.block_bytes = 0;
  EXPECT_FALSE(VisitStates(Disk(), {}, options, nothing).ok());
}

TEST(States, ModelsHaveNames) {
  for (const CrashModel model : {kKill, kExt4, kPosix}) {
    const auto parsed = ParseCrashModel(ToString(model));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(parsed.value(), model);
  }
  EXPECT_THAT(ParseCrashModel("ntfs").error().message, HasSubstr("'ntfs'"));
}

}  // namespace
}  // namespace shardproof::crash
