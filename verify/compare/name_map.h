// The map file of `compare --map`: how A's tensors become B's. MAP.md documents it for people,
// fixtures/schema/map.schema.json for machines.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/core/result.h"

namespace shardproof::compare {

/// Several tensors of A, joined along `dim`, are one of B.
struct FuseRule {
  std::vector<std::string> from;
  std::string to;
  size_t dim = 0;
};

/// One tensor of A, cut along `dim`, is several of B.
struct SplitRule {
  std::string from;
  std::vector<std::string> to;
  size_t dim = 0;
};

/// The tensor that becomes `name` in B has two dims swapped on the way, after all else.
struct TransposeRule {
  std::string name;
  size_t dim_a = 0;
  size_t dim_b = 0;
};

struct NameMap {
  std::string where;         ///< the file, for messages
  std::string strip_prefix;  ///< from names that no rule below takes
  std::string add_prefix;    ///< to the same names, after stripping
  std::map<std::string, std::string> rename;
  std::vector<FuseRule> fuse;
  std::vector<SplitRule> split;
  std::vector<TransposeRule> transpose;
};

/// \error kBadInput: no JSON object, an unknown or wrongly typed field, a key given twice.
Result<NameMap> ReadNameMap(const std::string& path);

/// The file's text for a map of prefixes and renames.
std::string NameMapText(const NameMap& map);

}  // namespace shardproof::compare
