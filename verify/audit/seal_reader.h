// What a seal says, each field checked.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "src/digest/digest.hpp"
#include "verify/compare/compare.h"

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

/// Holds the seals of two checkpoints against each other, by name, dtype, shape and digest, and
/// reads nothing of the checkpoints. Each path is a seal, or a checkpoint that has one.
/// \param options  the prefixes below_a and below_b alone. \error kBadInput: no seal, or a damaged
///   one.
Result<CompareResult> CompareSeals(const std::string& a, const std::string& b,
                                   const CompareOptions& options);

}  // namespace shardproof
