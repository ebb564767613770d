// A made-up run for the tests of the reports: evidence on disk and a result over it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verify/verdict/run_result.h"

namespace shardproof {

/// Writes the evidence of a small transformer on four ranks (phases values and memory; resume
/// skipped) into `directory`, through the real writer. \returns it as read back.
Evidence WriteSampleEvidence(const std::string& directory);

/// A property's outcome of the given kind.
PropertyResult Outcome(const std::string& id, Verdict verdict, const std::string& reason = "");

Finding SampleFinding();

/// One failure, one inconclusive, one skip among passes; or all passes.
RunResult SampleResult(const Evidence& evidence, const std::string& directory, bool failing);

/// A result in which every text that others choose is hostile.
RunResult HostileResult(const std::string& directory);

}  // namespace shardproof
