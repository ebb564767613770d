// Reads a directory of evidence (FORMAT.md), and writes its two run files. What a rank left is
// hostile: damage is noted on that rank and never keeps the others from being read.
#pragma once

#include <cstdint>
#include <string>

#include "src/core/result.h"
#include "verify/evidence/evidence.h"

namespace shardproof {

/// \error kBadInput naming the file, the field, what was expected and found, if run.json or
///   oracle.json is not as FORMAT.md says. A missing oracle.json is no error: then
///   oracle.source.error says so. A rank's damaged stream is in RankEvidence::damage.
Result<Evidence> ReadEvidence(const std::string& directory);

/// The directory that holds run.json: `path`, or the evidence of the report in `path`.
/// \error kBadInput if neither has one
Result<std::string> FindEvidence(const std::string& path);

/// Reads one rank's two streams into `rank`, whose `rank` and `world_size` are set. `stem` is the
/// path up to ".facts.jsonl"; `label` names it in RankEvidence::damage. States that are carried
/// from stage to stage take their approximate bytes from `budget_bytes`; when it is used up, the
/// rest of the stream is damage, so that a small hostile stream cannot become an endless amount of
/// memory.
void ReadRank(const std::string& stem, const std::string& label, uint64_t& budget_bytes,
              RankEvidence& rank);

/// Writes `directory`/run.json: the case, and of every phase all that is not in the ranks' streams.
/// Atomic, so that it can be rewritten after every phase.
Status WriteRun(const std::string& directory, const Evidence& evidence);

/// Writes `directory`/oracle.json. Atomic.
Status WriteOracle(const std::string& directory, const OracleRecord& oracle);
Result<OracleRecord> ReadOracle(const std::string& path);

}  // namespace shardproof
