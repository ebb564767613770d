// Ways to save a checkpoint: one that is right under every model, and the usual mistakes, each with
// the models that show it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "verify/crash_states/fixture_operations.h"
#include "verify/crash_states/judge.h"
#include "verify/process/scratch_directory.h"

namespace shardproof::crash {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

const std::string kOldA(9000, 'a');
const std::string kOldB = "old b";
const std::string kNewA(10000, 'A');
const std::string kNewB = "new b";

/// Checkpoint 1, and `latest` that names it.
Disk Before() {
  return DiskOf({MakeDirectory("1"), Create("1/a"), Write("1/a", 0, kOldA), Create("1/b"),
                 Write("1/b", 0, kOldB), Create("latest"), Write("latest", 0, "1")});
}

std::string TextOf(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) return "";
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Loads what `latest` names. It must be there and whole; a save must not leave its user without.
Result<LoadOutcome> Load(const std::string& directory) {
  const std::string name = TextOf(directory + "/latest");
  const std::string a = TextOf(directory + "/" + name + "/a");
  const std::string b = TextOf(directory + "/" + name + "/b");
  if (name == "1" && a == kOldA && b == kOldB) return LoadOutcome{Loaded::kOld, ""};
  if (name == "2" && a == kNewA && b == kNewB) return LoadOutcome{Loaded::kNew, ""};
  return LoadOutcome{Loaded::kWrong, "latest names '" + name + "', which is not whole"};
}

Operations File(const std::string& path, const std::string& bytes, bool sync = true) {
  Operations operations = {Create(path), Write(path, 0, bytes.substr(0, 5000))};
  if (bytes.size() > 5000) operations.push_back(Write(path, 5000, bytes.substr(5000)));
  if (sync) operations.push_back(SyncFile(path));
  return operations;
}

/// The parts of a save; a mistake leaves one out or moves it.
struct Save {
  Operations a = File("2.tmp/a", kNewA);
  Operations b = File("2.tmp/b", kNewB);
  Operations sync_staging = {SyncDirectory("2.tmp")};
  Operations commit = {Rename("2.tmp", "2")};
  Operations sync_commit = {SyncDirectory("")};
  Operations latest = File("latest.tmp", "2");
  Operations publish = {Rename("latest.tmp", "latest")};
  Operations sync_publish = {SyncDirectory("")};
  Operations remove_old;

  Operations All() const {
    Operations all;
    Append(all, {MakeDirectory("2.tmp")});
    for (const Operations& part :
         {a, b, sync_staging, commit, sync_commit, latest, publish, sync_publish, remove_old}) {
      Append(all, part);
    }
    return all;
  }
};

const Operations kRemoveOld = {Unlink("1/b"), Unlink("1/a"), RemoveDirectory("1")};

CrashReport RunSave(const Disk& before, const Operations& operations,
                    const StateOptions& options = {}, const Judge& judge = Load,
                    const JudgeOptions& judge_options = {}) {
  // In memory where there is such a place: thousands of small files are made and removed.
  auto scratch = ScratchDirectory::Make("/dev/shm");
  if (!scratch.ok()) scratch = ScratchDirectory::Make();
  EXPECT_TRUE(scratch.ok());
  const auto report =
      RunStates(before, operations, options, scratch.value()->path(), judge, judge_options);
  EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.error().message);
  return report.ok() ? report.value() : CrashReport();
}

/// The models under which a save leaves what it must not.
std::set<std::string> Caught(const Operations& operations) {
  std::set<std::string> caught;
  for (const CrashModel model : {CrashModel::kKill, CrashModel::kExt4Ordered, CrashModel::kPosix}) {
    StateOptions options;
    options.models = {model};
    const CrashReport report = RunSave(Before(), operations, options);
    if (report.bad_count > 0) caught.insert(ToString(model));
  }
  return caught;
}

TEST(Protocols, TheRightOneLeavesNothingBad) {
  Save save;
  for (const bool removes : {false, true}) {
    if (removes) save.remove_old = kRemoveOld;
    CrashReport report = RunSave(Before(), save.All());
    EXPECT_EQ(report.bad_count, 0) << report.bad.front().Text();
    EXPECT_GE(report.states.distinct, 68);
    EXPECT_GE(report.loads, 38);
    EXPECT_LE(report.loads, report.states.distinct);
    for (const CrashModel model :
         {CrashModel::kKill, CrashModel::kExt4Ordered, CrashModel::kPosix}) {
      EXPECT_GT(report.outcomes[model][Loaded::kOld], 5) << ToString(model);
      EXPECT_GT(report.outcomes[model][Loaded::kNew], 0) << ToString(model);
    }
  }
}

TEST(Protocols, AnExchangeOfTheWholeDirectoryLeavesNothingBad) {
  // As the reference pipeline commits: the name stays the same, the contents are swapped.
  const Disk before = DiskOf({MakeDirectory("c"), Create("c/a"), Write("c/a", 0, kOldA)});
  Operations save;
  Append(save, {MakeDirectory("c.saving")});
  Append(save, File("c.saving/a", kNewA));
  Append(save, {SyncDirectory("c.saving"), Exchange("c.saving", "c"), SyncDirectory(""),
                Unlink("c.saving/a"), RemoveDirectory("c.saving")});
  const Judge judge = [](const std::string& directory) -> Result<LoadOutcome> {
    const std::string a = TextOf(directory + "/c/a");
    return LoadOutcome{a == kOldA ? Loaded::kOld : a == kNewA ? Loaded::kNew : Loaded::kWrong, ""};
  };
  EXPECT_EQ(RunSave(before, save, {}, judge).bad_count, 0);
  std::swap(save[save.size() - 4], save[save.size() - 3]);  // the sync before the exchange
  const CrashReport report = RunSave(before, save, {}, judge);
  ASSERT_GT(report.bad_count, 0);
  EXPECT_EQ(report.bad.front().model, CrashModel::kExt4Ordered);
}

TEST(Protocols, RenamedBeforeTheBytesAreSynced) {
  Save save;
  save.a = File("2.tmp/a", kNewA, false);
  save.b = File("2.tmp/b", kNewB, false);
  EXPECT_THAT(Caught(save.All()), UnorderedElementsAre("ext4-ordered", "posix"));
  const CrashReport report = RunSave(Before(), save.All());
  EXPECT_THAT(report.bad.front().Text(), HasSubstr("write of bytes [5000, 10000) of 2.tmp/a"));
}

TEST(Protocols, LatestRenamedBeforeItsBytesAreSynced) {
  Save save;
  save.latest = File("latest.tmp", "2", false);
  // ext4 writes them with a rename over a file; nobody else promises that.
  EXPECT_THAT(Caught(save.All()), UnorderedElementsAre("posix"));
}

TEST(Protocols, OneOfTwoFilesIsSynced) {
  Save save;
  save.b = File("2.tmp/b", kNewB, false);
  EXPECT_THAT(Caught(save.All()), UnorderedElementsAre("ext4-ordered", "posix"));
}

TEST(Protocols, TheNamesInTheCheckpointAreNotSynced) {
  Save save;
  save.sync_staging.clear();
  EXPECT_THAT(Caught(save.All()), UnorderedElementsAre("posix"));
}

TEST(Protocols, TheCheckpointsNameIsNotSyncedBeforeLatestMoves) {
  Save save;
  save.sync_commit.clear();
  EXPECT_THAT(Caught(save.All()), UnorderedElementsAre("posix"));
}

TEST(Protocols, LatestIsNotSynced) {
  Save save;
  save.sync_publish.clear();
  // Only once the save has returned: until then the old one is right.
  EXPECT_THAT(Caught(save.All()), UnorderedElementsAre("ext4-ordered", "posix"));
  const CrashReport report = RunSave(Before(), save.All());
  for (const BadState& bad : report.bad) {
    EXPECT_EQ(bad.after, static_cast<int64_t>(save.All().size()));
    EXPECT_EQ(bad.Expected(), "new");
    EXPECT_EQ(bad.outcome.loaded, Loaded::kOld);
  }
}

TEST(Protocols, LatestMovesBeforeTheData) {
  Save save;
  Operations operations;
  for (const Operations& part : {save.latest, save.publish, save.sync_publish})
    Append(operations, part);
  save.latest.clear();
  save.publish.clear();
  Append(operations, save.All());
  EXPECT_THAT(Caught(operations), UnorderedElementsAre("kill", "ext4-ordered", "posix"));
}

TEST(Protocols, TheOldOneIsRemovedBeforeTheNewOneIsDurable) {
  Save save;
  save.sync_publish.clear();
  save.remove_old = kRemoveOld;
  Append(save.remove_old, {SyncDirectory("")});
  EXPECT_THAT(Caught(save.All()), UnorderedElementsAre("posix"));
  Operations at_once = kRemoveOld;
  Append(at_once, Save().All());
  EXPECT_THAT(Caught(at_once), UnorderedElementsAre("kill", "ext4-ordered", "posix"));
}

TEST(Protocols, OverwrittenInPlace) {
  const Operations operations = {Truncate("1/a", 0), Write("1/a", 0, kNewA), SyncFile("1/a"),
                                 Truncate("1/b", 0), Write("1/b", 0, kNewB), SyncFile("1/b")};
  EXPECT_THAT(Caught(operations), UnorderedElementsAre("kill", "ext4-ordered", "posix"));
  // Of one length and without a cut, only a torn write shows it to the eye.
  const Operations one = {Write("1/a", 0, std::string(kOldA.size(), 'x')), SyncFile("1/a")};
  const Judge judge = [](const std::string& directory) -> Result<LoadOutcome> {
    const std::string a = TextOf(directory + "/1/a");
    if (a == kOldA) return LoadOutcome{Loaded::kOld, ""};
    return LoadOutcome{a == std::string(kOldA.size(), 'x') ? Loaded::kNew : Loaded::kWrong, ""};
  };
  StateOptions options;
  options.models = {CrashModel::kKill};
  const CrashReport report = RunSave(Before(), one, options, judge);
  ASSERT_EQ(report.bad_count, 2);
  EXPECT_EQ(report.bad.front().Text(),
            "kill, after 0 operations (last: rank 0: write of bytes [0, 9000) of 1/a, under way), "
            "torn: write of bytes [0, 9000) of 1/a at 4096: expected new, old or refused with a "
            "line, loaded wrong");
}

TEST(Judge, ARefusalNeedsALine) {
  const Operations save = {Create("x"), Create("y")};
  std::string line = "x is missing";
  const Judge judge = [&](const std::string& directory) -> Result<LoadOutcome> {
    const auto read = Disk::Read(directory);
    if (!read.ok()) return read.error();
    const bool has_x = read.value().Find("x") != kNoInode;
    const bool has_y = read.value().Find("y") != kNoInode;
    if (has_x && has_y) return LoadOutcome{Loaded::kNew, ""};
    return LoadOutcome{has_x || has_y ? Loaded::kRefused : Loaded::kOld, line};
  };
  StateOptions options;
  options.models = {CrashModel::kKill};
  EXPECT_EQ(RunSave(Disk(), save, options, judge).bad_count, 0);
  line.clear();
  const CrashReport report = RunSave(Disk(), save, options, judge);
  ASSERT_EQ(report.bad_count, 1);
  EXPECT_EQ(report.bad.front().LastOperation(), "rank 0: create of x");
  EXPECT_EQ(report.bad.front().disk.Text(), "x: \n");
}

TEST(Judge, WithoutAPreviousOneARefusalTakesItsPlace) {
  const Judge judge = [](const std::string& directory) -> Result<LoadOutcome> {
    const auto read = Disk::Read(directory);
    if (!read.ok()) return read.error();
    if (read.value().Find("x") != kNoInode) return LoadOutcome{Loaded::kNew, ""};
    return LoadOutcome{Loaded::kRefused, "there is no x"};
  };
  StateOptions options;
  options.models = {CrashModel::kKill};
  EXPECT_EQ(RunSave(Disk(), {Create("x")}, options, judge, {.had_previous = false}).bad_count, 0);
  EXPECT_EQ(RunSave(Disk(), {Create("x")}, options, judge).bad_count, 1);
}

TEST(Judge, KeepsSoManyBadStatesAndCountsAll) {
  const Judge judge = [](const std::string&) -> Result<LoadOutcome> {
    return LoadOutcome{Loaded::kWrong, "always"};
  };
  const CrashReport report = RunSave(Before(), Save().All(), {}, judge, {.bad_max = 3});
  EXPECT_EQ(report.bad.size(), 3u);
  EXPECT_EQ(report.bad_count, report.states.distinct);
}

TEST(Judge, EndsWithAJudgeThatCannotTell) {
  const auto scratch = ScratchDirectory::Make();
  ASSERT_TRUE(scratch.ok());
  const Judge judge = [](const std::string&) -> Result<LoadOutcome> { return Failed("no memory"); };
  const auto report = RunStates(Before(), Save().All(), {}, scratch.value()->path(), judge);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().message, "no memory");
  const auto left = Disk::Read(scratch.value()->path());
  ASSERT_TRUE(left.ok());
  EXPECT_EQ(left.value(), Disk());
}

}  // namespace
}  // namespace shardproof::crash
