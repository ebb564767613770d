// What the commands about files came to, as a gate sees it.
#pragma once

#include <string>

#include "verify/audit/audit.h"
#include "verify/audit/run.h"
#include "verify/compare/compare.h"
#include "verify/crashtest/run.h"
#include "verify/gate/gate.h"

namespace shardproof {

/// A difference is of its kind and B's tensor.
gate::Outcome OutcomeOfCompare(const CompareResult& result);
/// A finding of an audit is a line, and is known by the line without numbers and without the path.
gate::Outcome OutcomeOfAudit(const AuditResult& result, int exit_code);
gate::Outcome OutcomeOfRunAudit(const RunAuditResult& result, int exit_code);
/// Bad states of one cause are one finding, known by the cause without numbers.
gate::Outcome OutcomeOfCrashtest(const crashtest::Outcome& result, int exit_code);

/// Words that are the same for other sizes, values and steps: each number outside single quotes
/// becomes #. \param path  left out where it stands
std::string WithoutSizes(const std::string& line, const std::string& path);

}  // namespace shardproof
