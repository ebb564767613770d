// What libshardproof_interpose.so has put on record, for whoever started the program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"

namespace shardproof::interpose {

struct Firing {
  std::string rule;      ///< as it was given
  std::string function;  ///< "ncclAllReduce", or a point of libfiu's
  int64_t call = 0;      ///< of those that match the rule, from 0
  std::optional<int64_t> rank;
  uint64_t bytes = 0;
  std::string detail;
};

/// Those of a log, in their order; without those that were taken back. A last line that has no end
/// is none: its writer was killed.
/// \error kBadInput  naming the file and the line that is no firing
/// \error kUnsupported  if there is no file: the library was never loaded
Result<std::vector<Firing>> ReadFirings(const std::string& path);

}  // namespace shardproof::interpose
