// A soak for people.
#pragma once

#include <string>

#include "verify/campaign/campaign.h"

namespace shardproof {

/// "1,234 cases, 0 failed, 5,678 a minute": for a progress line.
std::string SoakProgress(const SoakSummary& summary);

/// What was run, of what the cases were made, how often each property was judged, and the verdict.
std::string SoakReport(const SoakSummary& summary, SoakEnd end);

/// Fail if a case failed; inconclusive if one was, if there was none, or if it was interrupted.
Verdict SoakVerdict(const SoakSummary& summary, SoakEnd end);
/// Why it is no plain pass, or empty.
std::string SoakReason(const SoakSummary& summary, SoakEnd end);

}  // namespace shardproof
