// Every form of the report says what it must, and is well formed whatever the names in it are.
#include "verify/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/text/printable.h"
#include "verify/evidence/line_file.h"
#include "verify/report/sample_run.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class Reports : public testing::Test {
 protected:
  // check_report.py sets the variable, to hold what is written here against schemas and parsers.
  void SetUp() override {
    const char* keep = std::getenv("SHARDPROOF_REPORT_SAMPLES");
    kept_ = keep != nullptr;
    std::string pattern = testing::TempDir() + "/report.XXXXXX";
    directory_ = kept_ ? keep : mkdtemp(pattern.data());
    const std::string evidence = directory_ + "/evidence";
    fs::remove_all(evidence);
    evidence_ = WriteSampleEvidence(evidence);
    failing_ = SampleResult(evidence_, evidence, true);
    passing_ = SampleResult(evidence_, evidence, false);
  }
  void TearDown() override {
    if (!kept_) fs::remove_all(directory_);
  }

  static std::string Slurp(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  bool kept_ = false;
  std::string directory_;
  Evidence evidence_;
  RunResult failing_;
  RunResult passing_;
};

TEST_F(Reports, ResultFollowsFromTheEvidence) {
  EXPECT_EQ(failing_.verdict, Verdict::kFail);
  EXPECT_EQ(failing_.exit_code, 1);
  EXPECT_EQ(passing_.exit_code, 0);
  EXPECT_EQ(failing_.compared.comparisons, 168u * 5);
  EXPECT_EQ(failing_.compared.ranks, 4);
  EXPECT_EQ(failing_.compared.stages,
            (std::vector<std::string>{"built", "loaded", "ready", "saved"}));
  EXPECT_EQ(failing_.compared.phases, (std::vector<Phase>{Phase::kValues, Phase::kMemory}));
  EXPECT_EQ(failing_.compared.skipped.at(0).reason, "the case has no resume_mesh");
  EXPECT_EQ(MakeRunResult(evidence_, {}, "d").exit_code, 3);
  EXPECT_EQ(MakeRunResult(evidence_, {Outcome("a.b", Verdict::kSkip, "r")}, "d").exit_code, 77);
  EXPECT_EQ(MakeRunResult(evidence_, {}, "a b").next_command, "shardproof replay 'a b'");
}

TEST_F(Reports, TerminalFailureIsAboutTenLinesAndStandsAlone) {
  const std::string text = TerminalReport(failing_, {});
  EXPECT_THAT(text, HasSubstr("\nFAIL loading.equals_source: model.layers.0.mlp.up_proj.weight["
                              "100,17] on rank 2 of 4 is nan (0xffff), expected"));
  EXPECT_THAT(text, HasSubstr("passed  checkpoint 1, loading 2 of 3, memory 0 of 1, sharding 1\n"));
  EXPECT_THAT(text, HasSubstr("inconclusive memory.host_peak_within_bound: rank 3 left no"));
  EXPECT_THAT(text, HasSubstr("\nskipped 1 property (--explain shows why)\n"));
  EXPECT_THAT(text, Not(HasSubstr("checkpoint.reshard_exact")));
  EXPECT_THAT(text, HasSubstr("  likely    never written (poison)"));
  EXPECT_THAT(text, HasSubstr("  next      shardproof replay "));
  EXPECT_THAT(text, HasSubstr("fail: 840 comparisons, 4 ranks, 4 stages, phases values, memory"));
  EXPECT_THAT(text, HasSubstr("not run: resume (the case has no resume_mesh)"));
  EXPECT_THAT(text, HasSubstr("seed 17, torch 2.15.0\n"));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 11);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST_F(Reports, TerminalSaysWhatTheMessageLeavesOut) {
  const auto text_with = [&](const Finding::InMessage& in_message) {
    Finding finding = SampleFinding();
    finding.in_message = in_message;
    failing_.properties[2].judgement = Judgement();
    failing_.properties[2].judgement.Found(finding);
    return TerminalReport(failing_, {});
  };
  const std::string all = text_with({});
  for (const char* label : {"\n  expected  ", "\n  seen      ", "\n  likely    "}) {
    EXPECT_THAT(all, Not(HasSubstr(label)));
  }
  const std::string none = text_with({.expected = false, .seen = false, .explanation = false});
  EXPECT_THAT(none, HasSubstr("\n  expected  0.01446533203125 (0x3c6d)\n"));
  EXPECT_THAT(none, HasSubstr("\n  seen      nan (0xffff)\n"));
  EXPECT_THAT(none, HasSubstr("\n  likely    never written"));
}

TEST_F(Reports, TerminalBeginsWithTheVerdictAndTheFindings) {
  const std::string text = TerminalReport(failing_, {});
  EXPECT_EQ(text.find("shardproof: fail, 1 finding: reference on 4 ranks (dp_shard 4)"), 0u);
  EXPECT_EQ(text.find("FAIL loading.equals_source"), text.find('\n') + 1);
  EXPECT_LT(text.find("  next      "), text.find("inconclusive memory.host_peak_within_bound"));
  EXPECT_LT(text.find("inconclusive memory.host_peak_within_bound"), text.find("\npassed"));
  EXPECT_LT(text.find("\npassed"), text.find("\nskipped"));
  EXPECT_EQ(TerminalReport(passing_, {}).find("shardproof: pass: reference on 4 ranks"), 0u);
}

TEST_F(Reports, TerminalExplainsEachSkip) {
  const std::string text = TerminalReport(failing_, {.explain = true});
  EXPECT_THAT(text, HasSubstr("\nskipped checkpoint.reshard_exact: phase resume did not run"));
  EXPECT_THAT(text, Not(HasSubstr("--explain")));
}

TEST_F(Reports, TerminalPassIsShort) {
  const std::string text = TerminalReport(passing_, {});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_THAT(text, HasSubstr("passed  checkpoint 1, loading 3, memory 1, sharding 1\n"));
}

TEST_F(Reports, TerminalWrapsAllButWhatIsCopied) {
  std::istringstream lines(TerminalReport(failing_, {.width = 72}));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("FAIL", 0) == 0 || line.find("  next") == 0) continue;
    EXPECT_LE(line.size(), 72u) << line;
  }
}

TEST_F(Reports, TerminalColorsOnlyWhenAsked) {
  EXPECT_THAT(TerminalReport(failing_, {.color = true, .width = 100}),
              HasSubstr("\x1b[1;31mFAIL\x1b[0m loading"));
  EXPECT_THAT(TerminalReport(failing_, {.color = true, .width = 100}),
              HasSubstr("\x1b[1;31mfail\x1b[0m: "));
}

TEST_F(Reports, TerminalCountsTheFindingsItDoesNotShow) {
  Judgement& judgement = failing_.properties[2].judgement;
  for (int i = 0; i < 2000; ++i) judgement.Found(SampleFinding());
  const std::string text = TerminalReport(failing_, {});
  EXPECT_THAT(text, HasSubstr("and 1,999 more findings: loading.equals_source 1999"));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 35);
}

TEST_F(Reports, TerminalLineIsMadeFromTheFieldsWhenThereIsNoMessage) {
  failing_.properties[2].judgement.findings()[0].message.clear();
  EXPECT_THAT(TerminalReport(failing_, {}),
              HasSubstr("FAIL loading.equals_source: model.layers.0.mlp.up_proj.weight[100,17] on "
                        "rank 2 of 4 is nan (0xffff), expected 0.01446533203125 (0x3c6d)\n"));
}

TEST_F(Reports, HostileTextCannotSteerATerminal) {
  const std::string text = TerminalReport(HostileResult("d"), {.width = 80});
  for (const char c : text) {
    EXPECT_TRUE(c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f));
  }
  EXPECT_THAT(text, HasSubstr("\\x1b[2J\\x01\\xff"));
}

TEST_F(Reports, JsonHoldsWhatTheSchemaPromises) {
  const nlohmann::json json = RunResultToJson(failing_);
  EXPECT_EQ(json["verdict"], "fail");
  EXPECT_EQ(json["subject"], "reference");
  ASSERT_EQ(json["findings"].size(), 1u);
  const nlohmann::json& finding = json["findings"][0];
  for (const char* name : {"property", "kind", "class", "fingerprint", "stage", "phase", "ranks",
                           "hosts", "tensor", "index", "coordinates", "differing", "expected",
                           "seen", "explanation", "message", "next_command"}) {
    EXPECT_TRUE(finding.contains(name)) << name;
  }
  ASSERT_EQ(json["properties"].size(), 7u);
  EXPECT_EQ(json["properties"][2]["verdict"], "fail");
  EXPECT_EQ(json["compared"]["skipped_phases"][0]["name"], "resume");
  ASSERT_TRUE(WriteResultJson(failing_, directory_ + "/failing.json").ok());
  ASSERT_TRUE(WriteResultJson(passing_, directory_ + "/passing.json").ok());
  ASSERT_TRUE(
      WriteResultJson(HostileResult(directory_ + "/evidence"), directory_ + "/hostile.json").ok());
  EXPECT_TRUE(nlohmann::json::accept(Slurp(directory_ + "/hostile.json")));
  const Status failed = WriteResultJson(failing_, directory_ + "/none/x.json");
  ASSERT_FALSE(failed.ok());
  EXPECT_THAT(failed.error().message, HasSubstr("none/x.json: No such file"));
}

TEST_F(Reports, JUnitTellsInconclusiveFromSkipped) {
  const std::string xml = JUnitReport(failing_);
  EXPECT_THAT(xml,
              HasSubstr("tests=\"7\" failures=\"1\" errors=\"1\" skipped=\"1\" time=\"4.312\""));
  EXPECT_THAT(xml, HasSubstr("<testcase classname=\"loading\" name=\"equals_source\""));
  EXPECT_THAT(xml, HasSubstr("<failure type=\"differs\" message=\"model.layers.0"));
  EXPECT_THAT(xml, HasSubstr("<error type=\"inconclusive\" message=\"rank 3 left"));
  EXPECT_THAT(xml, HasSubstr("<skipped message=\"phase resume did not run"));
  EXPECT_THAT(JUnitReport(MakeRunResult(evidence_, {}, "d")),
              HasSubstr("tests=\"1\" failures=\"0\" errors=\"1\""));
  ASSERT_TRUE(WriteJUnit(failing_, directory_ + "/failing.xml").ok());
  ASSERT_TRUE(WriteJUnit(HostileResult("d"), directory_ + "/hostile.xml").ok());
}

TEST_F(Reports, WhatAGateKnowsIsShownAndDoesNotFail) {
  RunResult known = failing_;
  for (const Finding* finding : known.Findings()) {
    known.gate.known[finding->Fingerprint()] = {
        .owner = "ann", .issue = "<7>", .expires = "2099-01-01"};
    known.gate.known_properties.insert(finding->property);
  }
  known.gate.is_used = true;
  known.gate.known_count = known.FindingCount();
  known.verdict = Verdict::kInconclusive;
  const std::string text = TerminalReport(known, {});
  EXPECT_THAT(text, HasSubstr("KNOWN "));
  EXPECT_THAT(text, Not(HasSubstr("FAIL ")));
  EXPECT_THAT(text, HasSubstr("known     ann, <7>, until 2099-01-01"));
  EXPECT_THAT(text, HasSubstr(known.Findings()[0]->Fingerprint()));
  const std::string xml = JUnitReport(known);
  EXPECT_THAT(xml, HasSubstr("failures=\"0\""));
  EXPECT_THAT(xml,
              HasSubstr("<skipped message=\"known failure (ann, &lt;7&gt;, until 2099-01-01)"));
  EXPECT_THAT(RunResultToJson(known).dump(), HasSubstr("\"is_expired\":false"));
}

TEST_F(Reports, JUnitIsNotGreenWhereTheGateIsInconclusive) {
  RunResult few = passing_;
  few.gate.is_used = true;
  few.gate.notes = {"a known failure did not occur"};
  EXPECT_THAT(JUnitReport(few), Not(HasSubstr("<error")));
  few.verdict = Verdict::kInconclusive;
  EXPECT_THAT(JUnitReport(few), HasSubstr("errors=\"1\""));
  EXPECT_THAT(JUnitReport(few), HasSubstr("classname=\"gate\""));
}

TEST_F(Reports, JUnitEscapesHostileText) {
  const std::string xml = JUnitReport(HostileResult("d"));
  EXPECT_THAT(xml, HasSubstr("&lt;/script&gt;&lt;b&gt;&amp;&quot;'\\x1b[2J\\x01\\xff"));
  EXPECT_THAT(xml, Not(HasSubstr("<b>")));
  EXPECT_EQ(Printable(xml, true), xml);
}

TEST_F(Reports, HtmlScriptGetsItsArgumentsAndItsWordsAreQuoted) {
  const std::string script = directory_ + "/script.sh";
  std::ofstream(script) << "printf '%s|' \"$@\" > \"$3\"\n";
  const std::string out = directory_ + "/out $(touch x).html";
  ASSERT_TRUE(WriteHtml("/bin/sh", script, "a;b", "c d", out).ok());
  EXPECT_EQ(Slurp(out), "a;b|c d|" + out + "|");
  std::ofstream(script) << "echo 'no module named jinja2' >&2; exit 7\n";
  const Status failed = WriteHtml("/bin/sh", script, "a", "b", "out.html");
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(failed.error().message, HasSubstr("ended with exit 7: no module named jinja2"));
  std::ofstream(script) << "kill -9 $$\n";
  EXPECT_THAT(WriteHtml("/bin/sh", script, "a", "b", "o").error().message, HasSubstr("signal 9"));
  EXPECT_THAT(WriteHtml("/no/python", script, "a", "b", "o").error().message,
              HasSubstr("starting /no/python: No such file"));
}

TEST(Text, PrintableKeepsLanguagesAndEscapesTheRest) {
  EXPECT_EQ(Printable("größe 重み 🙂"), "größe 重み 🙂");
  EXPECT_EQ(Printable("\xc0\xaf\xf5\xed\xa0\x80"), "\\xc0\\xaf\\xf5\\xed\\xa0\\x80");
  EXPECT_EQ(Printable("a\nb"), "a\\nb");
  EXPECT_EQ(Printable("a\nb", true), "a\nb");
  EXPECT_EQ(Printable("\xe2\x80\xae"), "\\xe2\\x80\\xae");  // right-to-left override
  EXPECT_EQ(Printable("\xe6\x97"), "\\xe6\\x97");
}

TEST(Text, NumbersAndWords) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(999), "999");
  EXPECT_EQ(Grouped(1234567), "1,234,567");
  EXPECT_EQ(Plural(1, "rank"), "1 rank");
  EXPECT_EQ(ShellQuoted("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellQuoted("a/b-c.json"), "a/b-c.json");
  EXPECT_EQ(Wrapped("aa bb cc", 5, 2), "aa bb\n  cc");
  EXPECT_EQ(Wrapped("a-word-that-is-long b", 5, 2), "a-word-that-is-long\n  b");
}

}  // namespace
}  // namespace shardproof
