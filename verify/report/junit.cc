// JUnit XML, as CI systems read it.
#include <fmt/format.h>

#include <algorithm>

#include "src/text/printable.h"
#include "verify/evidence/line_file.h"
#include "verify/report/report.h"

namespace shardproof {
namespace {

std::string Detail(const Finding& finding) {
  std::string text = finding.message + "\n";
  if (!finding.expected.empty()) text += "expected: " + finding.expected + "\n";
  if (!finding.seen.empty()) text += "seen: " + finding.seen + "\n";
  if (!finding.explanation.empty()) text += "likely: " + finding.explanation + "\n";
  return text + "fingerprint: " + finding.Fingerprint() + "\n";
}

std::string Failure(const std::vector<Finding>& findings, const std::string& next_command) {
  std::string text;
  for (const Finding& finding : findings) text += Detail(finding);
  if (!next_command.empty()) text += "next: " + next_command + "\n";
  return fmt::format("    <failure type=\"{}\" message=\"{}\">{}</failure>\n",
                     XmlEscaped(findings.front().kind), XmlEscaped(findings.front().message),
                     XmlEscaped(text));
}

/// CI systems have no word for what fails and is known: it is skipped, with the reason.
std::string Known(const PropertyResult& property, const RunResult& result) {
  std::string text;
  for (const Finding& finding : property.judgement.findings()) {
    const KnownAs& as = result.gate.known.at(finding.Fingerprint());
    text += fmt::format("{}known failure ({}, {}, until {}): {}", text.empty() ? "" : "; ",
                        as.owner, as.issue, as.expires, finding.message);
  }
  return fmt::format("    <skipped message=\"{}\"/>\n", XmlEscaped(text));
}

std::string TestCase(const PropertyResult& property, const RunResult& result) {
  const size_t dot = property.id.find('.');
  const std::string group = property.id.substr(0, dot);
  const std::string name = dot == std::string::npos ? property.id : property.id.substr(dot + 1);
  const Judgement& judgement = property.judgement;
  std::string body;
  switch (judgement.verdict()) {
    case Verdict::kFail:
      body = result.gate.known_properties.contains(property.id)
                 ? Known(property, result)
                 : Failure(judgement.findings(), result.next_command);
      break;
    case Verdict::kInconclusive:
      body = fmt::format("    <error type=\"inconclusive\" message=\"{}\"/>\n",
                         XmlEscaped(judgement.reason()));
      break;
    case Verdict::kSkip:
      body = fmt::format("    <skipped message=\"{}\"/>\n", XmlEscaped(judgement.reason()));
      break;
    case Verdict::kPass:
      break;
  }
  return fmt::format(
      "  <testcase classname=\"{}\" name=\"{}\" time=\"0\">\n{}"
      "    <system-out>{} comparisons</system-out>\n  </testcase>\n",
      XmlEscaped(group), XmlEscaped(name), body, judgement.comparisons());
}

size_t Count(const RunResult& result, Verdict verdict) {
  return static_cast<size_t>(
      std::count_if(result.properties.begin(), result.properties.end(), [&](const auto& property) {
        const bool is_known = result.gate.known_properties.contains(property.id);
        return (is_known ? Verdict::kSkip : property.judgement.verdict()) == verdict;
      }));
}

/// Whether the run is inconclusive by its gate and no testcase says so.
bool IsOfGate(const RunResult& result) {
  return result.gate.is_used && result.verdict == Verdict::kInconclusive &&
         !result.properties.empty() && Count(result, Verdict::kInconclusive) == 0;
}

std::string GateCase(const RunResult& result) {
  std::string text;
  for (const std::string& note : result.gate.notes) text += (text.empty() ? "" : "; ") + note;
  if (text.empty()) text = "besides known failures, something could not be judged";
  return fmt::format(
      "  <testcase classname=\"gate\" name=\"compared_enough\" time=\"0\">\n"
      "    <error type=\"inconclusive\" message=\"{}\"/>\n  </testcase>\n",
      XmlEscaped(text));
}

}  // namespace

std::string JUnitReport(const RunResult& result) {
  // A run without any property would be an empty suite, which CI systems show as green.
  const bool empty = result.properties.empty();
  std::string cases;
  for (const PropertyResult& property : result.properties) {
    cases += TestCase(property, result);
  }
  if (empty) {
    cases =
        "  <testcase classname=\"run\" name=\"judged\" time=\"0\">\n"
        "    <error type=\"inconclusive\" message=\"no property was judged\"/>\n  </testcase>\n";
  }
  if (IsOfGate(result)) cases += GateCase(result);
  const size_t more = (empty ? 1 : 0) + (IsOfGate(result) ? 1 : 0);
  const std::string counts =
      fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\"",
                  result.properties.size() + more, Count(result, Verdict::kFail),
                  Count(result, Verdict::kInconclusive) + more, Count(result, Verdict::kSkip),
                  result.duration_ms / 1000);
  std::string properties = fmt::format(
      "    <property name=\"seed\" value=\"{}\"/>\n    <property "
      "name=\"ranks\" value=\"{}\"/>\n",
      result.test_case.seed, result.compared.ranks);
  for (const auto& [name, version] : result.versions) {
    properties += fmt::format("    <property name=\"version.{}\" value=\"{}\"/>\n",
                              XmlEscaped(name), XmlEscaped(version));
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {0}>\n"
      "<testsuite name=\"shardproof {1}\" {0}>\n  <properties>\n{2}  </properties>\n{3}"
      "</testsuite>\n</testsuites>\n",
      counts, XmlEscaped(result.test_case.subject), properties, cases);
}

Status WriteJUnit(const RunResult& result, const std::string& path) {
  return WriteFileAtomically(path, JUnitReport(result));
}

}  // namespace shardproof
