// What a seal says, each field checked.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "src/digest/digest.hpp"

namespace shardproof {

constexpr int64_t kSealSchema = 2;
constexpr char kSealDigestName[] = "src/digest/SPECIFICATION.md";

/// What a seal says of one tensor, value or file.
struct Sealed {
  std::string dtype;  ///< of a tensor, and its shape
  std::vector<int64_t> shape;
  int64_t bytes = 0;  ///< of a file
  Digest digest;
};

struct Seal {
  std::map<std::string, Sealed> tensors;
  std::map<std::string, Sealed> values;
  std::map<std::string, Sealed> files;
};

/// \error kBadInput: no seal, a damaged one, or one of another version.
Result<Seal> ReadSeal(const std::string& path);

}  // namespace shardproof
