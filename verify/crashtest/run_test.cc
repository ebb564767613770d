// The flow as a whole, with saves in sh and a loader that reads a file.
#include "verify/crashtest/run.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "verify/crashtest/crash_text.h"

namespace shardproof::crashtest {
namespace {

namespace fs = std::filesystem;
using crash::CrashModel;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class CrashTestRun : public ::testing::Test {
 protected:
  CrashTestRun() : base_(fs::temp_directory_path() / fmt::format("shardproof-run-{}", ::getpid())) {
    fs::create_directories(base_ / "root");
    fs::create_directories(base_ / "scratch");
    options_.root = base_ / "root";
    options_.loader = {"cat", "{}/ckpt"};
    std::ofstream(base_ / "root/ckpt") << "old";
  }
  ~CrashTestRun() override { fs::remove_all(base_); }

  Result<Outcome> Save(const std::string& script) {
    options_.command = {"sh", "-c", fmt::format("cd {} && {}", options_.root, script)};
    const auto loader = MakeCommandLoader(options_.loader, options_.deadline);
    return TestSave(options_, *loader, base_ / "scratch", [](const ProgressNote&) {});
  }

  std::string ErrorOf(const Result<Outcome>& outcome) {
    EXPECT_FALSE(outcome.ok());
    if (outcome.ok()) return "";
    EXPECT_NE(outcome.error().code, ErrorCode::kInternal);
    return outcome.error().message;
  }

  const fs::path base_;
  Options options_;
};

TEST_F(CrashTestRun, AWriteInPlaceIsLostByAKillAndItsStatesAreOneGroup) {
  const auto outcome = Save("printf new > ckpt && sync ckpt && sync .");
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  ASSERT_FALSE(outcome.value().groups.empty());
  const BadGroup& group = outcome.value().groups.front();
  EXPECT_EQ(group.model, CrashModel::kKill);
  EXPECT_EQ(group.what, "wrong");
  EXPECT_EQ(group.cause, "from the truncate of ckpt to 0 bytes on");
  const std::string text = CrashText(options_, outcome.value(), {});
  EXPECT_THAT(text, HasSubstr("wrong, needs only a kill, from the truncate of ckpt to 0 bytes on"));
  EXPECT_THAT(text, HasSubstr("the worst needs only a kill; --report DIR writes scripts"));
}

TEST_F(CrashTestRun, ASoundSavePasses) {
  const auto outcome = Save("printf new > t && sync t && mv t ckpt && sync .");
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_EQ(outcome.value().bad_count, 0) << CrashText(options_, outcome.value(), {});
  EXPECT_STREQ(VerdictOf(outcome.value()), "pass");
  EXPECT_EQ(outcome.value().models.size(), 3u);
}

TEST_F(CrashTestRun, WhatIsNotSyncedIsNotDurable) {
  const auto outcome = Save("printf new > t && sync t && mv t ckpt");
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_EQ(outcome.value().models.at(CrashModel::kKill).bad, 0);
  ASSERT_FALSE(outcome.value().groups.empty());
  for (const BadGroup& group : outcome.value().groups) EXPECT_EQ(group.what, "not durable");
  EXPECT_EQ(outcome.value().groups.front().model, CrashModel::kExt4Ordered);
  EXPECT_EQ(outcome.value().groups.front().cause, "without the rename of t to ckpt");
}

TEST_F(CrashTestRun, ALinkThatMovesBeforeTheDataIsLostByAKillAndOneThatMovesAfterItIsNot) {
  options_.loader = {"cat", "{}/latest"};
  fs::create_symlink("ckpt", base_ / "root/latest");
  const std::string data = "printf new > ckpt-2 && sync ckpt-2 && sync . && ";
  const std::string move = "ln -s ckpt-2 l && mv l latest && sync . && ";
  const auto early = Save(move + data + "true");
  ASSERT_TRUE(early.ok()) << early.error().message;
  ASSERT_FALSE(early.value().groups.empty());
  EXPECT_EQ(early.value().groups.front().model, CrashModel::kKill);
  EXPECT_EQ(early.value().groups.front().cause, "from the rename of l to latest on");
  fs::remove(base_ / "root/ckpt-2");
  fs::remove(base_ / "root/latest");
  fs::create_symlink("ckpt", base_ / "root/latest");
  const auto late = Save(data + move + "true");
  ASSERT_TRUE(late.ok()) << late.error().message;
  EXPECT_STREQ(VerdictOf(late.value()), "pass") << CrashText(options_, late.value(), {});
}

TEST_F(CrashTestRun, NothingDoneOrNothingToTellApartIsInconclusive) {
  const auto nothing = Save("true");
  ASSERT_TRUE(nothing.ok()) << nothing.error().message;
  EXPECT_STREQ(VerdictOf(nothing.value()), "inconclusive");
  EXPECT_THAT(nothing.value().inconclusive, HasSubstr("changed nothing below --root"));
  const auto same = Save("printf old > ckpt");
  ASSERT_TRUE(same.ok()) << same.error().message;
  EXPECT_THAT(same.value().inconclusive, HasSubstr("cannot be told apart"));
}

TEST_F(CrashTestRun, WhatIsRemovedTooEarlyIsTheCauseOfAllThatFollows) {
  const auto outcome = Save("rm ckpt && printf new > t && sync t && mv t ckpt && sync .");
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  ASSERT_FALSE(outcome.value().groups.empty());
  EXPECT_EQ(outcome.value().groups.front().cause, "from the unlink of ckpt on");
  EXPECT_NE(outcome.value().groups[1].model, CrashModel::kKill);
}

TEST_F(CrashTestRun, TheCauseIsNotAnotherFileWhoseNameBeginsAlike) {
  options_.states.models = {CrashModel::kPosix};
  const auto outcome = Save("printf new > ck && sync ck . && printf new > ckpt && sync ckpt .");
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  ASSERT_FALSE(outcome.value().groups.empty());
  for (const BadGroup& group : outcome.value().groups) {
    EXPECT_THAT(group.cause,
                AnyOf("without the bytes of ckpt", HasSubstr("of ckpt to 0 bytes on")));
  }
}

TEST_F(CrashTestRun, ALoadThatTellsOfOtherThingsSaysNothing) {
  options_.loader = {"sh", "-c", "cat {}/ckpt && date +%N"};
  const auto outcome = Save("printf new > t && sync t && mv t ckpt && sync .");
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_THAT(outcome.value().inconclusive, HasSubstr("twice gives different results"));
}

TEST_F(CrashTestRun, ALoadIsReadToItsEnd) {
  options_.states.models = {CrashModel::kKill};
  std::ofstream(base_ / "root/ckpt") << std::string(3 << 20, '1') << "old";
  const auto outcome = Save("cat ckpt > t && printf new >> t && sync t && mv t ckpt && sync .");
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_STREQ(VerdictOf(outcome.value()), "pass") << CrashText(options_, outcome.value(), {});
  std::ofstream(base_ / "root/ckpt") << std::string(17 << 20, '1');
  EXPECT_THAT(ErrorOf(Save("printf x >> ckpt")), HasSubstr("it can print a digest"));
}

TEST_F(CrashTestRun, ALinkIsNotWeighedAsWhatItLeadsTo) {
  fs::create_symlink("ckpt", base_ / "root/latest");
  options_.bytes_max = 5;  // ckpt has 3
  const auto outcome = Save("true");
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_THAT(outcome.value().inconclusive, HasSubstr("changed nothing below --root"));
}

TEST_F(CrashTestRun, OfVeryManyFilesSomeStatesAreLookedAt) {
  options_.states_max = 20;
  const auto outcome = Save(
      "mkdir d && for i in $(seq 300); do printf $i > d/$i; done; printf new > t && sync t d/* d "
      "&& "
      "mv t ckpt && sync .");
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_LT(outcome.value().loads, 100);
  const std::string text = CrashText(options_, outcome.value(), {});
  EXPECT_THAT(text, HasSubstr("sampled 20 of "));
  EXPECT_THAT(text, HasSubstr("and the losses at each"));
}

TEST_F(CrashTestRun, AFirstSaveMayBeRefused) {
  fs::remove(base_ / "root/ckpt");
  const auto outcome = Save("printf new > t && sync t && mv t ckpt && sync .");
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_FALSE(outcome.value().had_previous);
  EXPECT_EQ(outcome.value().bad_count, 0) << CrashText(options_, outcome.value(), {});
  EXPECT_GT(outcome.value().models.at(CrashModel::kKill).outcomes.at(crash::Loaded::kRefused), 0);
}

TEST_F(CrashTestRun, ACommandThatFailsIsTheUsersToMend) {
  EXPECT_THAT(ErrorOf(Save("echo first >&2; echo no disk >&2; exit 3")),
              HasSubstr("the command: expected exit 0, found exit 3: no disk"));
  EXPECT_THAT(ErrorOf(Save("kill -9 $$")), HasSubstr("signal 9"));
  EXPECT_THAT(ErrorOf(Save("rm ckpt")), HasSubstr("what the command saved"));
  options_.save_deadline = std::chrono::milliseconds(200);
  EXPECT_THAT(ErrorOf(Save("sleep 60")), HasSubstr("no end within"));
}

TEST_F(CrashTestRun, WhatCannotBeRecordedIsRefused) {
  EXPECT_THAT(ErrorOf(Save("ln -s ../scratch latest")), HasSubstr("root/latest: symlink"));
  fs::remove(base_ / "root/latest");
  options_.bytes_max = 2;
  EXPECT_THAT(ErrorOf(Save("true")), HasSubstr("expected at most 2 bytes"));
  options_.bytes_max = 100;
  EXPECT_THAT(ErrorOf(Save("head -c 200 /dev/zero > ckpt")), HasSubstr("--max-bytes"));
}

}  // namespace
}  // namespace shardproof::crashtest
