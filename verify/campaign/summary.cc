#include "verify/campaign/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "verify/case/case_json.h"
#include "verify/case/json_fields.h"
#include "verify/generate/features.h"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr size_t kFailuresMax = 20;

}  // namespace

uint64_t SoakSummary::PairsSeen() const {
  uint64_t pairs = 0;
  for (const auto& [feature, others] : beside) pairs += others.size();
  return pairs;
}

void SoakSummary::Count(const Case& test_case, const CaseOutcome& outcome, bool numbered) {
  passed += outcome.verdict == Verdict::kPass ? 1 : 0;
  failed += outcome.verdict == Verdict::kFail ? 1 : 0;
  // Nothing was seen to hold in a case that was skipped.
  inconclusive +=
      outcome.verdict == Verdict::kInconclusive || outcome.verdict == Verdict::kSkip ? 1 : 0;
  ranks += static_cast<uint64_t>(test_case.WorldSize());
  for (const auto& [id, property] : outcome.properties) {
    PropertyTally& tally = properties[id];
    tally.judged += property.comparisons > 0 ? 1 : 0;
    tally.comparisons += property.comparisons;
    comparisons += property.comparisons;
    if (property.verdict == Verdict::kFail) {
      ++tally.failed;
      if (numbered)
        tally.first_failed = std::min(tally.first_failed.value_or(outcome.index), outcome.index);
    }
    tally.inconclusive += property.verdict == Verdict::kInconclusive ? 1 : 0;
    tally.skipped += property.verdict == Verdict::kSkip ? 1 : 0;
  }
  std::vector<std::string> has = FeaturesOf(test_case);
  const auto fired = outcome.properties.find("fault.every_fault_fires");
  if (test_case.as_stated && fired != outcome.properties.end() && fired->second.comparisons > 1) {
    const std::string both_struck = kBothStruck;
    has.insert(std::upper_bound(has.begin(), has.end(), both_struck), both_struck);
  }
  for (auto feature = has.begin(); feature != has.end(); ++feature) {
    ++features[*feature];
    beside[*feature].insert(feature + 1, has.end());
  }
  auto& kept = outcome.verdict == Verdict::kFail ? failures : unclear;
  if (outcome.verdict != Verdict::kPass && kept.size() < kFailuresMax) {
    kept.push_back({test_case, outcome, numbered});
  }
  if (!numbered) return;
  counted_beyond.insert(outcome.index);
  while (counted_beyond.erase(next) > 0) ++next;
}

namespace {

json CasesToJson(const std::vector<FailedCase>& cases) {
  json out = json::array();
  for (const FailedCase& failed : cases) {
    out.push_back({{"case", CaseToJson(failed.test_case)},
                   {"outcome", OutcomeToJson(failed.outcome)},
                   {"numbered", failed.numbered}});
  }
  return out;
}

Result<std::vector<FailedCase>> CasesFromJson(const json& value) {
  std::vector<FailedCase> cases;
  for (const json& failed : value) {
    SP_ASSIGN(Case test_case, ParseCase(failed.at("case")));
    cases.push_back(
        {std::move(test_case), OutcomeFromJson(failed.at("outcome")), failed.at("numbered")});
  }
  return cases;
}

}  // namespace

json SummaryToJson(const SoakSummary& summary) {
  json properties = json::object();
  for (const auto& [id, tally] : summary.properties) {
    properties[id] = {{"judged", tally.judged},
                      {"comparisons", tally.comparisons},
                      {"failed", tally.failed},
                      {"inconclusive", tally.inconclusive},
                      {"skipped", tally.skipped}};
    if (tally.first_failed) properties[id]["first_failed"] = *tally.first_failed;
  }
  return {{"passed", summary.passed},
          {"failed", summary.failed},
          {"inconclusive", summary.inconclusive},
          {"comparisons", summary.comparisons},
          {"ranks", summary.ranks},
          {"duration_ms", summary.duration_ms},
          {"next", summary.next},
          {"counted_beyond", summary.counted_beyond},
          {"properties", std::move(properties)},
          {"features", summary.features},
          {"features_together", summary.beside},
          {"failures", CasesToJson(summary.failures)},
          {"unclear", CasesToJson(summary.unclear)}};
}

namespace {

/// As many as one soak of years could count; sums of them stay in range.
constexpr uint64_t kCountMax = 1'000'000'000'000'000;

void ReadTallies(FieldReader& summary, std::map<std::string, PropertyTally>& tallies) {
  ForEachMember(summary, "properties",
                [&](const std::string& id, const JsonValue& value, const std::string& at) {
                  FieldReader fields(value, at, summary.complaint());
                  PropertyTally& tally = tallies[id];
                  fields.Required("judged", tally.judged, uint64_t{0}, kCountMax);
                  fields.Required("comparisons", tally.comparisons, uint64_t{0}, kCountMax);
                  fields.Required("failed", tally.failed, uint64_t{0}, kCountMax);
                  fields.Required("inconclusive", tally.inconclusive, uint64_t{0}, kCountMax);
                  fields.Required("skipped", tally.skipped, uint64_t{0}, kCountMax);
                  fields.Optional("first_failed", tally.first_failed, uint64_t{0}, kCountMax);
                });
}

/// What it holds besides counts; says what is wrong by an exception of the JSON library.
Status ReadRest(const json& value, SoakSummary& summary) {
  value.at("counted_beyond").get_to(summary.counted_beyond);
  value.at("features").get_to(summary.features);
  value.at("features_together").get_to(summary.beside);
  SP_ASSIGN(summary.failures, CasesFromJson(value.at("failures")));
  SP_ASSIGN(summary.unclear, CasesFromJson(value.at("unclear")));
  return Ok();
}

}  // namespace

Result<SoakSummary> SummaryFromJson(const json& value) {
  SoakSummary summary;
  Complaint complaint;
  simdjson::dom::parser parser;
  SP_ASSIGN(const JsonValue counts, ParseJson(parser, DumpJson(value)));
  FieldReader fields(counts, "/summary", complaint);
  fields.Required("passed", summary.passed, uint64_t{0}, kCountMax);
  fields.Required("failed", summary.failed, uint64_t{0}, kCountMax);
  fields.Required("inconclusive", summary.inconclusive, uint64_t{0}, kCountMax);
  fields.Required("comparisons", summary.comparisons, uint64_t{0}, kCountMax);
  fields.Required("ranks", summary.ranks, uint64_t{0}, kCountMax);
  fields.Required("duration_ms", summary.duration_ms);
  fields.Required("next", summary.next, uint64_t{0}, kCountMax);
  ReadTallies(fields, summary.properties);
  if (!complaint.ok())
    return BadInput("expected a summary of generated cases: " + complaint.text());
  try {
    SP_TRY(ReadRest(value, summary));
  } catch (const json::exception& error) {
    return BadInput(fmt::format("expected a summary of generated cases: {}", error.what()));
  }
  if ((summary.failed > 0) == summary.failures.empty() ||
      (summary.inconclusive > 0) == summary.unclear.empty()) {
    return BadInput(
        "expected a summary of generated cases; found counts of failed and inconclusive cases that "
        "do not match the cases it lists");
  }
  return summary;
}

}  // namespace shardproof
