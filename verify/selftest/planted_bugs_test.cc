// Each planted bug is caught by each property that it names, alone: with all others off it must
// fail, with findings of its own. The same case without the bug passes under all properties: what
// is found is the bug. One program judges them all, since starting the command costs more than most
// cases.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "verify/bug/bug.h"
#include "verify/case/case.h"
#include "verify/engine/verification.h"
#include "verify/fault/fault.h"
#include "verify/launch/subject.h"
#include "verify/process/scratch_directory.h"

namespace shardproof {
namespace {

/// What compares values says against what.
bool IsOfValues(const Finding& finding) {
  return finding.kind == "differs" || finding.kind == "clobbered" || finding.kind == "dtype" ||
         finding.kind == "shape";
}

/// Every id is its domain, a dot and a name; gtest takes no dots.
std::string TestName(const std::string& id) {
  std::string name = id;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

std::vector<std::string> BugIds() {
  std::vector<std::string> ids;
  for (const PlantedBug& bug : AllBugs()) ids.push_back(bug.id);
  return ids;
}

class PlantedBugTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto bug = FindBug(GetParam());
    ASSERT_TRUE(bug.ok()) << bug.error().message;
    bug_ = bug.value();
    auto parsed = ParseCaseText(bug_.smallest_case);
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    case_ = parsed.value();
    if (const std::string why = WhyCannotStrike(case_); !why.empty()) GTEST_SKIP() << why;
    auto scratch = ScratchDirectory::Make();
    ASSERT_TRUE(scratch.ok()) << scratch.error().message;
    scratch_ = std::move(scratch.value());
  }

  /// Judged by `properties`, all if there are none, with the bug or without.
  Result<RunResult> Run(const std::string& bug, const std::vector<std::string>& properties) {
    Case test_case = case_;
    test_case.bug = bug;
    const std::string directory = scratch_->path() + "/run";
    std::filesystem::remove_all(directory);
    std::filesystem::create_directory(directory);
    const auto launcher =
        test_case.transport == "sim" ? MakeSimLauncher(false) : MakeForkLauncher();
    VerifyOptions options;
    options.subject.name = kReference;
    options.directory = directory;
    options.properties = properties;
    return Verify(test_case, *launcher, options);
  }

  PlantedBug bug_;
  Case case_;
  std::unique_ptr<ScratchDirectory> scratch_;
};

TEST_P(PlantedBugTest, IsCaughtByEachAlone) {
  ASSERT_FALSE(bug_.killed_by.empty()) << "names no property that must catch it";
  for (const std::string& killer : bug_.killed_by) {
    SCOPED_TRACE(killer);
    const auto result = Run(bug_.id, {killer});
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(ToString(result.value().verdict), "fail");
    EXPECT_FALSE(result.value().Findings().empty());
    for (const Finding* finding : result.value().Findings()) {
      EXPECT_EQ(finding->property, killer) << finding->message;
      if (!IsOfValues(*finding)) continue;
      EXPECT_NE(finding->facts.against.what, Against::What::kNothing) << finding->message;
    }
  }
}

TEST_P(PlantedBugTest, IsAllThatIsFound) {
  const auto result = Run("", {});
  ASSERT_TRUE(result.ok()) << result.error().message;
  for (const Finding* finding : result.value().Findings()) ADD_FAILURE() << finding->message;
  for (const PropertyResult& property : result.value().properties) {
    if (std::count(bug_.killed_by.begin(), bug_.killed_by.end(), property.id) == 0) continue;
    EXPECT_EQ(ToString(property.judgement.verdict()), "pass")
        << property.id << " did not judge the clean case: " << property.judgement.reason();
  }
}

INSTANTIATE_TEST_SUITE_P(Bug, PlantedBugTest, ::testing::ValuesIn(BugIds()),
                         [](const auto& info) { return TestName(info.param); });

}  // namespace
}  // namespace shardproof
