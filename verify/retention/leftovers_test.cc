#include "verify/retention/leftovers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <utime.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kDay = 86400;

class CleanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = ::testing::TempDir() + "/clean-XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    root_ = fs::canonical(path);
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(const fs::path& path, const std::string& text, int64_t days = 10) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
    const utimbuf then{.actime = std::time(nullptr) - days * kDay,
                       .modtime = std::time(nullptr) - days * kDay};
    ::utime((root_ / path).c_str(), &then);
  }
  void Evidence(const fs::path& folder, int64_t days = 10) {
    Write(folder / "run.json", R"({"schema": 1, "case": {}, "phases": []})", days);
    Write(folder / "values" / "rank_0.facts.jsonl", "{}\n", days);
    Age(folder / "values", days);
  }
  void Report(const fs::path& folder, int64_t days = 10) {
    Write(folder / "result.json",
          R"({"schema": 1, "verdict": "pass", "properties": [], "findings": [], "compared": {},
              "evidence": "e"})",
          days);
    Write(folder / "report.html", "<html>", days);
    Evidence(folder / "evidence", days);
    Age(folder / "evidence", days);
  }
  void Age(const fs::path& path, int64_t days) {
    const utimbuf then{.actime = std::time(nullptr) - days * kDay,
                       .modtime = std::time(nullptr) - days * kDay};
    ::utime((root_ / path).c_str(), &then);
  }
  std::vector<Leftover> Find(const CleanOptions& options = {},
                             const std::vector<std::string>& scratch = {}) {
    const auto found = FindLeftovers(root_, options, scratch, std::time(nullptr));
    EXPECT_TRUE(found.ok());
    return found.ok() ? found.value() : std::vector<Leftover>();
  }

  fs::path root_;
};

TEST_F(CleanTest, ReportsAndEvidenceGoAndNothingElse) {
  Report("a/report");
  Evidence("b/shardproof-evidence");
  Write("c/result.json", R"({"verdict": "pass"})");
  Write("c/report.html", "somebody else's");
  Write("d/run.json", "not JSON");
  const std::vector<Leftover> found = Find();
  ASSERT_EQ(found.size(), 2u);
  for (const Leftover& leftover : found) {
    EXPECT_EQ(leftover.why_kept, "");
    EXPECT_GT(leftover.bytes, 0u);
    EXPECT_TRUE(Remove(leftover).ok());
  }
  EXPECT_FALSE(fs::exists(root_ / "a/report"));
  EXPECT_FALSE(fs::exists(root_ / "b/shardproof-evidence"));
  EXPECT_TRUE(fs::exists(root_ / "c/result.json"));
  EXPECT_TRUE(fs::exists(root_ / "d/run.json"));
}

TEST_F(CleanTest, WhatNoRunWroteStays) {
  Report("r");
  Write("r/notes.txt", "mine");
  Write("r/summary.md", "### Shardproof verify: pass\n");
  Write("r/reproducers/mine.py", "no reproducers.json beside it");
  Write("r/evidence/values/x", "of the phase");
  Age("r/evidence/values", 10);
  const std::vector<Leftover> found = Find();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].others, ElementsAre("notes.txt", "reproducers"));
  EXPECT_TRUE(Remove(found[0]).ok());
  EXPECT_FALSE(fs::exists(root_ / "r/evidence"));
  EXPECT_FALSE(fs::exists(root_ / "r/summary.md"));
  EXPECT_TRUE(fs::exists(root_ / "r/notes.txt"));
  EXPECT_TRUE(fs::exists(root_ / "r/reproducers/mine.py"));
  EXPECT_THAT(Find(), IsEmpty());
}

TEST_F(CleanTest, LinksAreNotFollowed) {
  Report("real/report");
  Write("kept/model.safetensors", "weights");
  fs::create_directories(root_ / "look");
  fs::create_directory_symlink(root_ / "real/report", root_ / "look/link");
  fs::create_directory_symlink(root_ / "kept", root_ / "real/report/evidence/source");
  const auto below = FindLeftovers(root_ / "look", {}, {}, std::time(nullptr));
  ASSERT_TRUE(below.ok());
  EXPECT_THAT(below.value(), IsEmpty());
  std::vector<Leftover> found = Find({.older_s = 0});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(Remove(found[0]).ok());
  EXPECT_TRUE(fs::exists(root_ / "kept/model.safetensors"));
  Write("linked/run.txt", "x");
  fs::create_symlink(root_ / "linked/run.txt", root_ / "linked/run.json");
  EXPECT_THAT(Find(), IsEmpty());
}

TEST_F(CleanTest, ByAgeAndCount) {
  for (const int64_t days : {1, 5, 20, 30}) Report("r" + std::to_string(days), days);
  Report("now", 0);
  const auto goes = [&](const CleanOptions& options) {
    std::vector<std::string> names;
    for (const Leftover& leftover : Find(options)) {
      if (leftover.why_kept.empty()) names.push_back(fs::path(leftover.path).filename().string());
    }
    return names;
  };
  EXPECT_THAT(goes({}), ElementsAre("r1", "r5", "r20", "r30"));
  EXPECT_THAT(goes({.older_s = 14 * kDay}), ElementsAre("r20", "r30"));
  EXPECT_THAT(goes({.keep = 3}), ElementsAre("r20", "r30"));
  EXPECT_THAT(goes({.older_s = 14 * kDay, .keep = 4}), ElementsAre("r30"));
  EXPECT_THAT(goes({.keep = 0}), ElementsAre("r1", "r5", "r20", "r30"));
  EXPECT_THAT(goes({.older_s = 0}), ElementsAre("now", "r1", "r5", "r20", "r30"));
}

TEST_F(CleanTest, ScratchThatAProcessUsesStays) {
  fs::create_directories(root_ / "tmp/shardproof-abcDEF/x");
  fs::create_directories(root_ / "tmp/shardproof-earlier-4194399");
  fs::create_directories(root_ / "tmp/shardproof-notes");
  fs::create_directories(root_ / "tmp/shardproof-abc123");
  fs::create_directory_symlink(root_ / "tmp/shardproof-notes", root_ / "tmp/shardproof-123456");
  fs::create_directories(root_ / "tmp/shardproof-output");
  fs::create_directories(root_ / "tmp/shardproof-Mine12");
  for (const auto& entry : fs::directory_iterator(root_ / "tmp")) {
    if (!entry.is_symlink()) fs::permissions(entry.path(), fs::perms::owner_all);
  }
  fs::permissions(root_ / "tmp/shardproof-Mine12", static_cast<fs::perms>(0755));
  std::ofstream open(root_ / "tmp/shardproof-abc123/open");
  std::vector<std::string> goes;
  for (const Leftover& leftover : Find({.older_s = 0}, {root_ / "tmp"})) {
    const std::string name = fs::path(leftover.path).filename().string();
    if (leftover.why_kept.empty()) goes.push_back(name);
    if (name == "shardproof-abc123") {
      EXPECT_EQ(leftover.why_kept, "a process uses it");
    }
  }
  EXPECT_THAT(goes,
              ::testing::UnorderedElementsAre("shardproof-abcDEF", "shardproof-earlier-4194399"));
}

TEST_F(CleanTest, BadInput) {
  EXPECT_FALSE(FindLeftovers(root_ / "none", {}, {}, 0).ok());
  Write("file", "x");
  EXPECT_FALSE(FindLeftovers(root_ / "file", {}, {}, 0).ok());
  EXPECT_EQ(ParseAge("14d").value(), 14 * kDay);
  EXPECT_EQ(ParseAge("0s").value(), 0);
  for (const char* text : {"", "d", "14", "-1d", "1.5h", "14 d", "1y", "99999999999d"}) {
    const auto age = ParseAge(text);
    ASSERT_FALSE(age.ok()) << text;
    EXPECT_THAT(age.error().message, HasSubstr("such as 14d"));
  }
}

}  // namespace
}  // namespace shardproof
