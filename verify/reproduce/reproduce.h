// What shows the findings of a run without this verifier at hand, or to those who mend it.
#pragma once

#include <string>
#include <vector>

#include "src/core/result.h"

namespace shardproof {

/// Writes a Markdown report of each group of findings and, of a Python subject, standalone scripts
/// that were seen to fail in the same way; of the reference pipeline, its case and a C++ program.
/// Takes minutes where there are many.
/// \param command  interpreter, subject.py or reference.py, RESULT.json, and what else they take
/// \param out      the directory that the command writes into
/// \returns the path of the first script, or "" if there is none.
/// \error kBadInput naming the directory and quoting what the command said.
Result<std::string> WriteReproducers(const std::vector<std::string>& command,
                                     const std::string& out);

}  // namespace shardproof
