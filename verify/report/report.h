// The four forms of a report. All are pure functions of a RunResult but for the writing of files.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "src/core/result.h"
#include "verify/verdict/run_result.h"

namespace shardproof {

struct TerminalStyle {
  bool color = false;
  int width = 0;         ///< columns to wrap at; 0: never
  bool explain = false;  ///< each property that was skipped, with its reason, not their number
};

/// For people at a terminal and for logs: the verdict and what ran, a few lines a finding, what
/// could not be judged, then one line of what passed, one of what was skipped, and a last line that
/// says what the verdict rests on. A finding's first line is never wrapped: it is made to be
/// copied.
std::string TerminalReport(const RunResult& result, const TerminalStyle& style);

/// The `--json` document; fixtures/schema/verdict.schema.json.
nlohmann::json RunResultToJson(const RunResult& result);
/// \error kBadInput naming the file. Atomic: a reader sees the old document or the new.
Status WriteResultJson(const RunResult& result, const std::string& path);

/// JUnit XML, one testcase a property: fail is <failure>, inconclusive <error>, skip <skipped>.
std::string JUnitReport(const RunResult& result);
/// \error kBadInput naming the file. Atomic.
Status WriteJUnit(const RunResult& result, const std::string& path);

/// One self-contained HTML file, made by report_html.py from the JSON document and the evidence.
/// \param python  interpreter that has jinja2 and matplotlib
/// \param script  verify/report/report_html.py
/// \error kBadInput naming the file and quoting what the script said.
Status WriteHtml(const std::string& python, const std::string& script,
                 const std::string& result_json, const std::string& evidence_directory,
                 const std::string& out);

}  // namespace shardproof
