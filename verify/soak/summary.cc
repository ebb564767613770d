#include "verify/soak/summary.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "verify/case/case_json.h"
#include "verify/case/features.h"

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
      if (numbered) tally.first_failed = std::min(tally.first_failed.value_or(outcome.index), outcome.index);
    }
    tally.inconclusive += property.verdict == Verdict::kInconclusive ? 1 : 0;
    tally.skipped += property.verdict == Verdict::kSkip ? 1 : 0;
  }
  const std::vector<std::string> has = FeaturesOf(test_case);
  for (auto feature = has.begin(); feature != has.end(); ++feature) {
    ++features[*feature];
    beside[*feature].insert(feature + 1, has.end());
  }
  auto& kept = outcome.verdict == Verdict::kFail ? failures : unclear;
  if (outcome.verdict != Verdict::kPass && kept.size() < kFailuresMax) {
    kept.push_back({test_case, outcome});
  }
  if (!numbered) return;
  counted_beyond.insert(outcome.index);
  while (counted_beyond.erase(next) > 0) ++next;
}

namespace {

json CasesToJson(const std::vector<FailedCase>& cases) {
  json out = json::array();
  for (const FailedCase& failed : cases) {
    out.push_back(
        {{"case", CaseToJson(failed.test_case)}, {"outcome", OutcomeToJson(failed.outcome)}});
  }
  return out;
}

Result<std::vector<FailedCase>> CasesFromJson(const json& value) {
  std::vector<FailedCase> cases;
  for (const json& failed : value) {
    SP_ASSIGN(Case test_case, ParseCase(failed.at("case")));
    cases.push_back({std::move(test_case), OutcomeFromJson(failed.at("outcome"))});
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

Result<SoakSummary> SummaryFromJson(const json& value) {
  SoakSummary summary;
  try {
    value.at("passed").get_to(summary.passed);
    value.at("failed").get_to(summary.failed);
    value.at("inconclusive").get_to(summary.inconclusive);
    value.at("comparisons").get_to(summary.comparisons);
    value.at("ranks").get_to(summary.ranks);
    value.at("duration_ms").get_to(summary.duration_ms);
    value.at("next").get_to(summary.next);
    value.at("counted_beyond").get_to(summary.counted_beyond);
    value.at("features").get_to(summary.features);
    value.at("features_together").get_to(summary.beside);
    for (const auto& [id, tally] : value.at("properties").items()) {
      summary.properties[id] = {tally.at("judged"), tally.at("comparisons"), tally.at("failed"),
                                tally.at("inconclusive"), tally.at("skipped"), std::nullopt};
      if (tally.contains("first_failed")) summary.properties[id].first_failed = tally["first_failed"];
    }
    SP_ASSIGN(summary.failures, CasesFromJson(value.at("failures")));
    SP_ASSIGN(summary.unclear, CasesFromJson(value.at("unclear")));
  } catch (const json::exception& error) {
    return BadInput(fmt::format("is not what a soak left: {}", error.what()));
  }
  return summary;
}

}  // namespace shardproof
