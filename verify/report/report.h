// The four forms of a report. All are pure functions of a RunResult but for the writing of files.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/verdict/run_result.h"

namespace shardproof {

/// For people at a terminal and for logs: one line of what ran, one of what passed, a few a
/// finding, and a last line that says what the verdict rests on. \param width  columns to wrap at;
/// 0: never. A finding's first line is never wrapped: it is made
///               to be copied.
std::string TerminalReport(const RunResult& result, bool color, int width);

/// The `--json` document; fixtures/schema/verdict.schema.json.
nlohmann::json RunResultToJson(const RunResult& result);
/// \error kBadInput naming the file. Atomic: a reader sees the old document or the new.
Status WriteResultJson(const RunResult& result, const std::string& path);

/// JUnit XML, one testcase a property: fail is <failure>, inconclusive <error>, skip <skipped>.
std::string JUnitReport(const RunResult& result);
/// \error kBadInput naming the file. Atomic.
Status WriteJUnit(const RunResult& result, const std::string& path);

/// One self-contained HTML file, made by html.py from the JSON document and the evidence.
/// \param python  interpreter that has jinja2 and matplotlib
/// \param script  verify/report/html.py
/// \error kBadInput naming the file and quoting what the script said.
Status WriteHtml(const std::string& python, const std::string& script,
                 const std::string& result_json, const std::string& evidence_directory,
                 const std::string& out);

/// A Markdown report for each finding and, where one was seen to fail in the same way, a standalone
/// script of a Python subject or a C++ program of the reference. Takes minutes where there are
/// many. \param command  interpreter, reproducer.py or reproducer_reference.py, which say how, and
/// options \returns the path of the first script, or "" if none was seen to fail. \error kBadInput
/// naming the directory and quoting what the script said.
Result<std::string> WriteReproducers(std::vector<std::string> command,
                                     const std::string& result_json,
                                     const std::string& evidence_directory, const std::string& out);

}  // namespace shardproof
