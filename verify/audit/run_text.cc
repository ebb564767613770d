// A run for people and for machines.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/text/amounts.h"
#include "verify/audit/run.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

using oracle::Printable;

constexpr size_t kFindingsShownMax = 100;
constexpr size_t kStepsShownMax = 200;
constexpr size_t kBarWidth = 20;

std::string StateOf(const RunStep& step) {
  if (!step.damage.empty()) return "NOT SOUND";
  if (!step.lacks.empty()) {
    return fmt::format("cannot be resumed from: lacks {}",
                       Printable(fmt::format("{}", fmt::join(step.lacks, ", "))));
  }
  if (step.is_model_alone) return "cannot be resumed from: the model alone";
  if (step.is_other_model) return "its tensors are not those of the step before";
  if (!step.same_as.empty()) return "same as " + Printable(step.same_as);
  return step.unjudged.empty() ? "whole" : "not all of it could be read";
}

/// The share of its tensors that are others than in the step before.
std::string Bar(const RunStep& step) {
  if (step.tensors == 0) return std::string(kBarWidth, ' ');
  const size_t filled =
      std::min<size_t>(kBarWidth, (step.changed * kBarWidth + step.tensors - 1) / step.tensors);
  return std::string(filled, '#') + std::string(kBarWidth - filled, '.');
}

}  // namespace

std::string RunText(const RunAuditResult& result) {
  size_t count = result.findings.size();
  for (const RunStep& step : result.steps) count += step.damage.size();
  const bool lacks = !result.steps.empty() && !result.steps.back().lacks.empty();
  std::string text = fmt::format("NOT SOUND  {}\n", Count(count + lacks, "finding"));
  if (result.IsSound()) {
    text = result.is_headers_only
               ? "SOUND, headers only  every checkpoint is complete; no value was read\n"
               : "SOUND  every checkpoint is whole, and each differs from the ones before\n";
  }
  std::vector<std::string> lines = result.findings;
  for (const RunStep& step : result.steps)
    lines.insert(lines.end(), step.damage.begin(), step.damage.end());
  if (lacks) {
    lines.push_back(
        fmt::format("{}: expected the files that the other checkpoints have, found none of {}",
                    Printable(result.steps.back().name),
                    Printable(fmt::format("{}", fmt::join(result.steps.back().lacks, ", ")))));
  }
  for (size_t i = 0; i < lines.size() && i < kFindingsShownMax; ++i) text += "  " + lines[i] + "\n";
  if (lines.size() > kFindingsShownMax) {
    text += fmt::format("  and {} more\n", lines.size() - kFindingsShownMax);
  }
  size_t width = 10;
  for (const RunStep& step : result.steps) width = std::max(width, Printable(step.name).size());
  text += fmt::format("\n{}: {}\n  {:<{}}  {:>12}  {:<{}}  {:>13}  state\n", Printable(result.path),
                      Count(result.steps.size(), "checkpoint"), "checkpoint", width, "size",
                      "changed", kBarWidth, "of tensors");
  const size_t first =
      result.steps.size() > kStepsShownMax ? result.steps.size() - kStepsShownMax : 0;
  if (first > 0) text += fmt::format("  {} earlier ones are not shown; --json has them\n", first);
  for (size_t i = first; i < result.steps.size(); ++i) {
    const RunStep& step = result.steps[i];
    text += fmt::format(
        "  {:<{}}  {:>12}  {}  {:>13}  {}\n", Printable(step.name), width, Bytes(step.bytes),
        result.is_headers_only ? std::string(kBarWidth, ' ') : Bar(step),
        i == 0 || result.is_headers_only ? fmt::format("{}", step.tensors)
                                         : fmt::format("{} of {}", step.changed, step.tensors),
        StateOf(step));
  }
  if (!result.others.empty()) {
    text += fmt::format("skipped, not checkpoints: {}\n",
                        Printable(fmt::format("{}", fmt::join(result.others, ", "))));
  }
  text += result.resume_from.empty() ? "no checkpoint can be resumed from\n"
                                     : "resume from: " + Printable(result.resume_from) + "\n";
  return text;
}

nlohmann::json RunJson(const RunAuditResult& result) {
  nlohmann::json steps = nlohmann::json::array();
  for (const RunStep& step : result.steps) {
    steps.push_back({{"name", step.name},
                     {"path", step.path},
                     {"step", step.step},
                     {"counter", step.counter},
                     {"damage", step.damage},
                     {"not_judged", step.unjudged},
                     {"lacks", step.lacks},
                     {"model_alone", step.is_model_alone},
                     {"same_as", step.same_as},
                     {"tensors", step.tensors},
                     {"changed", step.changed},
                     {"bytes", step.bytes}});
  }
  return {{"path", result.path},
          {"sound", result.IsSound()},
          {"findings", result.findings},
          {"checkpoints", std::move(steps)},
          {"others", result.others},
          {"resume_from", result.resume_from},
          {"headers_only", result.is_headers_only}};
}

}  // namespace shardproof
