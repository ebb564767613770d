// Two checkpoints by what was sealed of them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "verify/audit/audit.h"
#include "verify/audit/seal_reader.h"
#include "verify/compare/compare.h"
#include "verify/formats/archive.h"

namespace shardproof {
namespace seal_compare {
namespace {

using Entries = std::map<std::string, Sealed>;

Result<Seal> SealOf(const std::string& path) {
  SP_TRY(formats::MountPlace(path));  // its seal may lie in it
  return ReadSeal(path.ends_with("seal.json") ? path : SealPath(path));
}

/// What has names that begin so, without that beginning.
Entries Below(const Entries& entries, const std::string& prefix) {
  Entries below;
  for (const auto& [name, sealed] : entries) {
    if (name.starts_with(prefix)) below.emplace(name.substr(prefix.size()), sealed);
  }
  return below;
}

std::string TagText(const Sealed& sealed) {
  return fmt::format("{} [{}]", sealed.dtype, fmt::join(sealed.shape, ", "));
}

void Differs(const std::string& kind, const std::string& name, const Sealed& b,
             const std::string& expected, const std::string& seen, CompareResult& result) {
  TensorDifference difference;
  difference.kind = kind;
  difference.tensor = name;
  difference.dtype = b.dtype;
  difference.shape = b.shape;
  difference.expected = expected;
  difference.seen = seen;
  result.differences.push_back(std::move(difference));
}

/// \returns how many have one name.
uint64_t Hold(const Entries& a, const Entries& b, const char* kind, CompareResult& result) {
  uint64_t paired = 0;
  for (const auto& [name, expected] : a) {
    const auto found = b.find(name);
    if (found == b.end()) {
      result.only_in_a.push_back(name);
      continue;
    }
    ++paired;
    const Sealed& seen = found->second;
    if (expected.dtype != seen.dtype || expected.shape != seen.shape) {
      Differs(expected.dtype == seen.dtype ? "shape" : "dtype", name, seen, TagText(expected),
              TagText(seen), result);
    } else if (expected.digest != seen.digest) {
      Differs(kind, name, seen, expected.digest.Hex(), seen.digest.Hex(), result);
    }
  }
  for (const auto& [name, seen] : b) {
    if (!a.contains(name)) result.only_in_b.push_back(name);
  }
  return paired;
}

}  // namespace
}  // namespace seal_compare

Result<CompareResult> CompareSeals(const std::string& a, const std::string& b,
                                   const CompareOptions& options) {
  SP_ASSIGN(const Seal seal_a, seal_compare::SealOf(a));
  SP_ASSIGN(const Seal seal_b, seal_compare::SealOf(b));
  CompareResult result;
  result.a = a;
  result.b = b;
  result.is_by_seals = true;
  const auto hold = [&](const auto& of_a, const auto& of_b, const char* kind) {
    return seal_compare::Hold(seal_compare::Below(of_a, options.below_a),
                              seal_compare::Below(of_b, options.below_b), kind, result);
  };
  result.tensors = hold(seal_a.tensors, seal_b.tensors, "digest");
  if (seal_a.values.empty() || seal_b.values.empty()) {
    result.values_left = seal_a.values.size() + seal_b.values.size();
  } else {
    result.values = hold(seal_a.values, seal_b.values, "value");
  }
  if (!result.differences.empty() || !result.only_in_a.empty() || !result.only_in_b.empty()) {
    result.verdict = Verdict::kFail;
  } else if (result.tensors + result.values == 0) {
    result.reason = "nothing was compared: neither seal names a tensor";
  } else {
    result.verdict = Verdict::kPass;
  }
  return result;
}

}  // namespace shardproof
