// A failure that only ranks show which have run a case before: it is one where a second set of such
// processes shows it again, and inconclusive where none does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "verify/bug/bug.h"
#include "verify/campaign/campaign.h"
#include "verify/process/scratch_directory.h"

namespace shardproof {
namespace {

using ::testing::HasSubstr;

/// Of a case without another mesh to resume on, with a bug: phase values. Plain has none.
constexpr int kLaunchesOfACase = 1;

/// Fills nothing from its second launch in a process on; once only, where `marker` says where that
/// is noted.
void PlantLater(Stages& stages, const std::string& marker) {
  static int launches = 0;
  if (++launches <= kLaunchesOfACase || std::filesystem::exists(marker)) return;
  if (!marker.empty()) std::ofstream(marker) << "struck";
  stages.fill = [](Model&, KeyMatch&, const Source&, const Stages&, const Job&, World&) {
    return Ok();
  };
}

std::string MarkerPath() {
  return (std::filesystem::temp_directory_path() /
          ("shardproof-struck-once-" + std::to_string(::getppid())))
      .string();
}

const BugRegistration kAlways{{.id = "selftest.later",
                               .mistake = "a process that has run a case fills nothing",
                               .seen_in = "",
                               .killed_by = {},
                               .smallest_case = "",
                               .plant = [](Stages& stages, World&) { PlantLater(stages, ""); }}};

const BugRegistration kOnce{
    {.id = "selftest.later_once",
     .mistake = "the same of one process",
     .seen_in = "",
     .killed_by = {},
     .smallest_case = "",
     .plant = [](Stages& stages, World&) { PlantLater(stages, MarkerPath()); }}};

constexpr const char* kCase = R"({"schema": 1, "why": "run twice", "mesh": [{"name": "dp_shard",
  "size": 1}], "model": {"tensors": [{"name": "a.weight", "dtype": "F32", "shape": [5, 3]}]}})";

/// What becomes of a case that runs where it has run before.
CaseOutcome SecondRun(const std::string& bug) {
  const auto scratch = ScratchDirectory::Make();
  EXPECT_TRUE(scratch.ok());
  SoakOptions options;
  options.directory = scratch.value()->path();
  options.subject.name = kReference;
  CaseRunner runner(options, options.directory + "/case", false);
  auto test_case = ParseCaseText(kCase);
  EXPECT_TRUE(test_case.ok());
  test_case.value().bug = bug;
  EXPECT_NE(ToString(runner.Run(test_case.value()).verdict), "fail");
  return runner.Run(test_case.value());
}

TEST(ReusedProcess, WhatASecondOneShowsAgainIsAFailure) {
  const CaseOutcome outcome = SecondRun("selftest.later");
  EXPECT_EQ(ToString(outcome.verdict), "fail");
  ASSERT_FALSE(outcome.findings.empty());
  EXPECT_THAT(outcome.findings[0].message, HasSubstr("so in two processes"));
}

TEST(ReusedProcess, WhatASecondOneDoesNotShowIsInconclusive) {
  const CaseOutcome outcome = SecondRun("selftest.later_once");
  std::filesystem::remove(MarkerPath());
  EXPECT_EQ(ToString(outcome.verdict), "inconclusive");
  EXPECT_THAT(outcome.reason, HasSubstr("failed in a reused process"));
}

}  // namespace
}  // namespace shardproof
