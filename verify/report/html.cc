// Runs html.py.
#include <fmt/format.h>

#include "verify/process/program.h"
#include "verify/report/report.h"
#include "verify/report/text.h"

namespace shardproof {
namespace {

constexpr auto kHtmlDeadline = std::chrono::minutes(10);

}  // namespace

Status WriteHtml(const std::string& python, const std::string& script,
                 const std::string& result_json, const std::string& evidence_directory,
                 const std::string& out) {
  const auto end =
      RunProgram({python, script, result_json, evidence_directory, out}, kHtmlDeadline);
  if (!end.ok()) return end.error().While("HTML report " + out);
  if (end.value().ok()) return Ok();
  return BadInput(fmt::format("HTML report {}: {} ended with {}: {}", out, script, end.value().how,
                              Printable(end.value().error_tail, true)));
}

}  // namespace shardproof
