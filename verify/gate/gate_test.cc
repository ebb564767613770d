#include "verify/gate/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace shardproof::gate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kToday = "2026-06-15";

class GateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = ::testing::TempDir() + "/gate-XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    folder_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  /// An entry that names what `which` says.
  static std::string Entry(const std::string& which, const std::string& expires = "2026-06-15") {
    return "{" + which + R"(, "owner": "ann", "issue": "#7", "expires": ")" + expires + "\"}";
  }
  std::string Known(const std::string& entries) const {
    return Write("known.json", R"({"schema": 1, "known": [)" + entries + "]}");
  }
  Outcome Judged(const Options& options, Outcome outcome) const {
    const auto gate = Gate::Open(options, kToday);
    EXPECT_TRUE(gate.ok()) << (gate.ok() ? "" : gate.error().message);
    if (gate.ok()) gate.value().Judge(outcome);
    return outcome;
  }
  std::string Refusal(const std::string& known) const {
    const auto gate = Gate::Open({.known = Write("bad.json", known)}, kToday);
    return gate.ok() ? "" : gate.error().message;
  }

  std::string folder_;
};

Item Differs(const std::string& tensor) {
  return {.property = "loading.equals_source",
          .kind = "differs",
          .stage = "ready",
          .tensor = tensor,
          .message = tensor + " differs"};
}

/// One property that fails with these findings, and one that passes.
Outcome Failing(std::vector<Item> items) {
  Outcome outcome{.command = "verify", .target = "s", .verdict = Verdict::kFail, .exit_code = 1};
  outcome.rows = {{.id = "loading.equals_source",
                   .verdict = Verdict::kFail,
                   .comparisons = 100,
                   .findings = items.size()},
                  {.id = "sharding.covers", .verdict = Verdict::kPass, .comparisons = 50}};
  outcome.items = std::move(items);
  outcome.comparisons = 150;
  return outcome;
}

Outcome Passing() {
  Outcome outcome = Failing({});
  outcome.rows[0].verdict = outcome.verdict = Verdict::kPass;
  outcome.exit_code = 0;
  return outcome;
}

TEST_F(GateTest, AllKnownPasses) {
  const Item item = Differs("a.w");
  const std::string by_print = Entry("\"fingerprint\": \"" + item.fingerprint() + "\"");
  const Outcome outcome = Judged({.known = Known(by_print)}, Failing({item}));
  EXPECT_EQ(outcome.verdict, Verdict::kPass);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(VerdictInWords(outcome), "pass, 1 known finding");
  EXPECT_TRUE(outcome.rows[0].is_known);
  EXPECT_THAT(outcome.notes, IsEmpty());
}

TEST_F(GateTest, APatternNamesSeveralAndANewOneStillFails) {
  const std::string entry =
      Entry(R"("property": "loading.equals_source", "kind": "differs", "tensor": "layers.*.w")");
  const Outcome known =
      Judged({.known = Known(entry)}, Failing({Differs("layers.0.w"), Differs("layers.11.w")}));
  EXPECT_EQ(VerdictInWords(known), "pass, 2 known findings");
  const Outcome mixed =
      Judged({.known = Known(entry)}, Failing({Differs("layers.0.w"), Differs("head.w")}));
  EXPECT_EQ(mixed.exit_code, 1);
  EXPECT_EQ(VerdictInWords(mixed), "fail, 2 findings, 1 of them known");
  EXPECT_FALSE(mixed.rows[0].is_known);
  Item other = Differs("layers.0.w");
  other.kind = "nan";
  EXPECT_EQ(Judged({.known = Known(entry)}, Failing({other})).exit_code, 1);
}

TEST_F(GateTest, AFindingThatIsCountedAndNotKeptIsLookedAtToo) {
  const std::string entry =
      Entry(R"("property": "loading.equals_source", "kind": "differs", "tensor": "layers.*")");
  Item not_kept = Differs("head.w");
  not_kept.message.clear();
  EXPECT_EQ(Judged({.known = Known(entry)}, Failing({Differs("layers.0"), not_kept})).exit_code, 1);
  Outcome more = Failing({Differs("layers.0")});
  more.rows[0].findings = 2;  // of one of them nobody says what it is
  EXPECT_EQ(Judged({.known = Known(entry)}, more).exit_code, 1);
}

TEST_F(GateTest, ExpiredFailsTheDayAfter) {
  const std::string which = "\"fingerprint\": \"" + Differs("w").fingerprint() + "\"";
  const Outcome last_day =
      Judged({.known = Known(Entry(which, "2026-06-15"))}, Failing({Differs("w")}));
  EXPECT_EQ(last_day.exit_code, 0);
  const Outcome after =
      Judged({.known = Known(Entry(which, "2026-06-14"))}, Failing({Differs("w")}));
  EXPECT_EQ(after.exit_code, 1);
  EXPECT_EQ(after.ExpiredCount(), 1u);
  EXPECT_THAT(after.notes, ElementsAre(HasSubstr("has expired, so it fails (ann, #7, until "
                                                 "2026-06-14)")));
}

TEST_F(GateTest, WhatNoLongerOccursIsTold) {
  const Outcome outcome =
      Judged({.known = Known(Entry("\"fingerprint\": \"0123456789abcdef\""))}, Passing());
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(
      outcome.notes,
      ElementsAre(HasSubstr("1 known failure did not occur in this run: 0123456789abcdef")));
}

TEST_F(GateTest, AHangOrABrokenVerifierIsNeverKnown) {
  for (const auto& [kind, failure_class] :
       {std::pair("hang", "code"), std::pair("threw", "verifier")}) {
    Item item{.property = "fault.every_rank_finishes",
              .kind = kind,
              .failure_class = failure_class,
              .message = "m"};
    Outcome outcome = Failing({item});
    outcome.rows[0].id = item.property;
    outcome.exit_code = 4;
    const std::string entry = Entry("\"fingerprint\": \"" + item.fingerprint() + "\"");
    outcome = Judged({.known = Known(entry)}, outcome);
    EXPECT_EQ(outcome.exit_code, 4);
    EXPECT_EQ(outcome.KnownCount(), 0u);
    EXPECT_THAT(outcome.notes, ElementsAre(HasSubstr("always fails")));
  }
}

TEST_F(GateTest, WhatElseCouldNotBeJudgedIsNotHidden) {
  const std::string entry = Entry("\"fingerprint\": \"" + Differs("w").fingerprint() + "\"");
  Outcome unjudged = Failing({Differs("w")});
  unjudged.rows[0].reason = "rank 1 is absent";
  unjudged = Judged({.known = Known(entry)}, unjudged);
  EXPECT_EQ(unjudged.exit_code, 3);
  EXPECT_THAT(unjudged.reason, HasSubstr("rank 1 is absent"));
  Outcome nothing = Failing({Differs("w")});
  nothing.rows[0].comparisons = 0;
  EXPECT_EQ(Judged({.known = Known(entry)}, nothing).exit_code, 3);
}

TEST_F(GateTest, BadEntriesAreRefusedInOneLine) {
  const auto list = [](const std::string& entry) {
    return R"({"schema": 1, "known": [)" + entry + "]}";
  };
  const std::string print = R"("fingerprint": "0123456789abcdef")";
  const std::pair<std::string, std::string> bad[] = {
      {"", "not JSON"},
      {"[]", "expected an object"},
      {R"({"schema": 2, "known": []})", "/schema"},
      {R"({"known": []})", "\"schema\" is missing"},
      {R"({"schema": 1, "known": [], "more": 1})", "more"},
      {list(Entry(print, "2026-02-30")), "/known/0/expires: expected a date such as 2026-12-31"},
      {list(Entry(print, "soon")), "found \"soon\""},
      {list(Entry(print, "2026-1-1")), "a date"},
      {list(Entry(print, "99999-01-1")), "a date"},
      {list(Entry(R"("fingerprint": "0123")")), "16 hexadecimal digits"},
      {list(Entry(R"("fingerprint": 7)")), "16 hexadecimal digits"},
      {list(Entry("\"why\": \"w\"")), "found neither"},
      {list(Entry(print + R"(, "kind": "differs")")), "found both"},
      {list(Entry(R"("property": "p", "kind": "k")")), "\"tensor\" is missing"},
      {list(R"({"fingerprint": "0123456789abcdef", "issue": "i", "expires": "2026-01-01"})"),
       "\"owner\" is missing"},
      {list(R"({"fingerprint": "0123456789abcdef", "owner": " ", "issue": "i",
                "expires": "2026-01-01"})"),
       "/known/0/owner: expected a text that is not empty"},
      {list(Entry(print + R"(, "until": 1)")), "until"},
      {list(Entry(print) + "," + Entry(print)),
       "/known/1: names the same findings as an earlier entry"}};
  for (const auto& [text, words] : bad) {
    const std::string message = Refusal(text);
    EXPECT_THAT(message, HasSubstr(words)) << text;
    EXPECT_THAT(message, HasSubstr("--known " + folder_));
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  EXPECT_FALSE(Gate::Open({.known = Path("none.json")}, kToday).ok());
  EXPECT_FALSE(Gate::Open({.known = folder_}, kToday).ok());
}

TEST(MatchesPatternTest, StarsAndQuestionMarks) {
  for (const auto& [text, pattern] : {std::pair("a.0.w", "a.*.w"),
                                      {"a.0.w", "*"},
                                      {"abab", "*ab"},
                                      {"a", "?"},
                                      {"", "*"},
                                      {"", ""},
                                      {"abcbd", "a*b?"}}) {
    EXPECT_TRUE(MatchesPattern(text, pattern)) << text << " " << pattern;
  }
  for (const auto& [text, pattern] : {std::pair("a.0.w", "a.*.b"),
                                      {"a", ""},
                                      {"", "?"},
                                      {"ab", "a"},
                                      {"a.w", "A.w"},
                                      {"a[0]", "a[1]"}}) {
    EXPECT_FALSE(MatchesPattern(text, pattern)) << text << " " << pattern;
  }
}

TEST_F(GateTest, FewerComparisonsAreInconclusive) {
  EXPECT_EQ(Judged({.min_comparisons = 150}, Passing()).exit_code, 0);
  const Outcome few = Judged({.min_comparisons = 151}, Passing());
  EXPECT_EQ(few.exit_code, 3);
  EXPECT_THAT(few.reason, HasSubstr("150 comparisons made, and --min-comparisons asks for 151"));
  Outcome skipped = Passing();
  skipped.rows.clear();
  skipped.comparisons = 0;
  skipped.verdict = Verdict::kSkip;
  skipped.exit_code = 77;
  EXPECT_EQ(Judged({.min_comparisons = 1}, skipped).exit_code, 3);
  EXPECT_EQ(Judged({.min_comparisons = 1000}, Failing({Differs("w")})).exit_code, 1);
}

TEST_F(GateTest, ABaselineSaysWhatIsLacking) {
  const auto with = [&](const std::string& rows, uint64_t total, Outcome outcome) {
    const std::string text = R"({"verdict": "pass", "compared": {"comparisons": )" +
                             std::to_string(total) + R"(}, "properties": [)" + rows + "]}";
    return Judged({.baseline = Write("then.json", text)}, std::move(outcome));
  };
  const std::string same = R"({"id": "loading.equals_source", "comparisons": 111},
                              {"id": "sharding.covers", "comparisons": 50},
                              {"id": "memory.bound", "comparisons": 0})";
  EXPECT_EQ(with(same, 161, Passing()).exit_code, 0);
  const Outcome lost =
      with(same + R"(, {"id": "training.steps", "comparisons": 3})", 164, Passing());
  EXPECT_EQ(lost.exit_code, 3);
  EXPECT_THAT(lost.reason, HasSubstr("compared in the baseline, but not now: training.steps"));
  const Outcome fewer = with(R"({"id": "sharding.covers", "comparisons": 56})", 150, Passing());
  EXPECT_EQ(fewer.exit_code, 3);
  EXPECT_THAT(fewer.reason, HasSubstr("sharding.covers 50 instead of 56"));
  EXPECT_EQ(with("", 200, Passing()).exit_code, 3);
  Outcome drawn = Passing();
  drawn.is_drawn = true;
  EXPECT_EQ(with(R"({"id": "sharding.covers", "comparisons": 56})", 150, drawn).exit_code, 0);
}

TEST_F(GateTest, ABaselineThatIsNoneIsRefused) {
  for (const char* text : {"", "[]", "{}", R"({"verdict": "pass", "comparisons": 0})",
                           R"({"comparisons": -3})", R"({"comparisons": "many"})"}) {
    const auto gate = Gate::Open({.baseline = Write("then.json", text)}, kToday);
    ASSERT_FALSE(gate.ok()) << text;
    EXPECT_THAT(gate.error().message, HasSubstr("--baseline " + folder_));
  }
  EXPECT_FALSE(Gate::Open({.baseline = Path("none.json")}, kToday).ok());
}

TEST_F(GateTest, NamesAreNoMarkup) {
  Item item = Differs("a|b`c<script>\n# d");
  item.message = "**bold** [x](http://evil) @all |";
  Outcome outcome = Failing({item});
  outcome.rows[1].reason = "a | b\nc";
  outcome.target = "<img src=x>";
  const std::string text = Summary(outcome, "https://ci.example/run/7");
  EXPECT_THAT(text, HasSubstr("### Shardproof verify: fail, 1 finding\n"));
  EXPECT_THAT(text, HasSubstr("[The report](https://ci.example/run/7)"));
  EXPECT_THAT(text, HasSubstr(item.fingerprint()));
  for (const char* raw : {"<script>", "<img", "**bold**", "[x]", "@all", "a|b", "`c", "\n# d"}) {
    EXPECT_THAT(text, Not(HasSubstr(raw)));
  }
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("|")) continue;
    EXPECT_EQ(std::count(line.begin(), line.end(), '|'), 6) << line;
  }
}

TEST_F(GateTest, FilesAreWrittenAndAPageIsAddedTo) {
  const Options options{.summary = Path("s.md"), .prometheus = Path("m.prom")};
  const auto gate = Gate::Open(options, kToday);
  ASSERT_TRUE(gate.ok());
  ASSERT_TRUE(gate.value().Write(Passing()).ok());
  ASSERT_TRUE(gate.value().Write(Passing()).ok());
  const std::string once = Read(options.summary);
  ::setenv("GITHUB_STEP_SUMMARY", options.summary.c_str(), 1);
  ASSERT_TRUE(gate.value().Write(Passing()).ok());
  ::unsetenv("GITHUB_STEP_SUMMARY");
  EXPECT_EQ(Read(options.summary), once + once);
  EXPECT_THAT(
      Read(options.prometheus),
      HasSubstr("shardproof_verdict{command=\"verify\",target=\"s\",verdict=\"pass\"} 1\n"));
}

TEST_F(GateTest, WhatCannotBeWrittenIsRefusedBefore) {
  EXPECT_FALSE(Gate::Open({.summary = folder_}, kToday).ok());
  EXPECT_FALSE(Gate::Open({.prometheus = Path("none/m.prom")}, kToday).ok());
  EXPECT_TRUE(Gate::Open({.summary = Path("out/s.md"), .made = Path("out")}, kToday).ok());
  EXPECT_FALSE(Gate::Open({.summary = Path("else/s.md"), .made = Path("out")}, kToday).ok());
  for (const char* url : {"file:///etc", "https://a b", "https://a)b", "javascript:x"}) {
    EXPECT_FALSE(Gate::Open({.report_url = url}, kToday).ok()) << url;
  }
}

TEST(MetricsTest, LabelsAreEscaped) {
  Outcome outcome{.command = "verify", .target = "a\\b\"c\nd", .verdict = Verdict::kPass};
  const std::string text = Metrics(outcome, 7);
  EXPECT_THAT(text, HasSubstr(R"(target="a\\b\"c\\nd")"));
  EXPECT_THAT(text, HasSubstr("shardproof_last_run_timestamp_seconds{"));
  EXPECT_TRUE(text.ends_with(" 7\n"));
}

}  // namespace
}  // namespace shardproof::gate
