// A soak for people.
#pragma once

#include <string>

#include "verify/campaign/campaign.h"

namespace shardproof {

/// "1,234 cases, 0 failed, 5,678 a minute": for a progress line.
std::string SoakProgress(const SoakSummary& summary);

/// Of what the cases were made, and how often each property was judged. Nothing if the run ended
/// with the first case that failed: that says little of the stream, and the case is shown.
/// \param explain  name the features and properties that no case had, not only their number.
std::string SoakTables(const SoakSummary& summary, SoakEnd end, bool explain);

/// One line: the verdict, and how many cases it rests on.
std::string SoakLine(const SoakSummary& summary, SoakEnd end);

/// Fail if a case failed; inconclusive if one was, if there was none, or if it was interrupted.
Verdict SoakVerdict(const SoakSummary& summary, SoakEnd end);
/// Why it is no plain pass, or empty.
std::string SoakReason(const SoakSummary& summary, SoakEnd end);

}  // namespace shardproof
