// `shardproof compare A B` as a library: are two checkpoints the same tensors, bit for bit?
// A and B are each a directory of torch.distributed.checkpoint (DCP), a safetensors directory (one
// file, sharded with an index, or any *.safetensors), a safetensors file, a file of torch.save or a
// directory of such. Memory stays at a few MiB whatever the tensors' size.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/verdict/finding.h"

namespace shardproof {

struct CompareOptions {
  /// Files of rules, and rules themselves (what has an arrow), as in verify/maps/README.md. None:
  /// names must agree.
  std::vector<std::string> maps;
  /// A directory of PEFT's files, whose LoRA is merged into A before the map applies; or empty.
  std::string adapter;
  /// A float dtype: B may hold A cast to it (to nearest, ties to even, F8_E4M3 saturating, any NaN
  /// for a NaN). A tensor that B keeps in A's dtype may be A's, or A's cast and cast back. Empty:
  /// bit-exact.
  std::string cast;
  /// Quantised weights are compared by the numbers that they stand for, within the bound that their
  /// formats imply; floats of different dtypes within half a step of each.
  bool dequantised = false;
  std::string below_a;  ///< of A only what has names that begin so, without that beginning
  std::string below_b;  ///< of B likewise
};

/// One tensor that is not the same in A and B. A is what is expected, B what is seen.
struct TensorDifference {
  /// "dtype", "shape" or "differs"; "gap": elements that no rule holds against anything; "value" of
  /// what is no tensor.
  std::string kind;
  std::string tensor;  ///< B's name
  std::string source;  ///< what of A it was held against, if the map says so: "fuse of q, k, v"
  std::string dtype;   ///< of the values in `expected` and `seen`
  std::vector<int64_t> shape;
  uint64_t elements = 0;              ///< of the tensor
  std::optional<uint64_t> differing;  ///< elements that differ; unset unless kind is "differs"
  std::optional<uint64_t> index;      ///< row-major index of the first of them
  std::vector<int64_t> coordinates;   ///< the same, per dim
  std::string expected;               ///< "0.015625 (0x3c800000)", or A's dtype or shape
  std::string seen;
  std::string explanation;  ///< the likely cause
  double of_bound = 0;  ///< of numbers that are held within a bound: the largest error as a part
                        ///< of it; `index` is then where it is
};

/// A quantised weight that was held against its counterpart.
struct UnitCompared {
  std::string tensor;
  std::string a;  ///< its format in A: "NVFP4 of ModelOpt", "BF16"
  std::string b;
  double of_bound = 0;  ///< the largest error as a part of its bound
};

struct CompareResult {
  Verdict verdict = Verdict::kInconclusive;
  std::string reason;  ///< why inconclusive; empty otherwise
  std::string a;
  std::string b;
  std::string cast;
  std::vector<TensorDifference> differences;  ///< sorted by tensor
  std::vector<std::string> only_in_a;         ///< sorted
  std::vector<std::string> lacking;  ///< names without which a rule was left out, a line each
  std::vector<std::string> only_in_b;
  std::string suggested_map;  ///< text of a map file that would pair the names, or empty
  std::string suggestion;     ///< what that map does, in words
  uint64_t tensors = 0;       ///< of B whose values were compared
  uint64_t cast_tensors = 0;  ///< how many of them after the cast
  uint64_t computed = 0;      ///< how many are equal within a bound, since the map computes
  double worst = 0;           ///< of these: the largest error as a part of its bound
  uint64_t elements = 0;      ///< compared
  uint64_t bytes = 0;         ///< compared, on B's side
  uint64_t values = 0;        ///< pairs of values that are no tensors, compared
  uint64_t left_out_a = 0;    ///< elements of A that the map leaves out
  uint64_t left_out_b = 0;    ///< of B
  bool is_by_seals = false;   ///< digests were compared, and no value was read
  uint64_t values_left = 0;   ///< values not compared since the other side's format can hold none
  bool is_dequantised = false;
  std::vector<UnitCompared> units;    ///< of numbers, worst first
  std::vector<std::string> unjudged;  ///< weights that are neither right nor wrong, and why
  uint64_t beside = 0;  ///< tensors about activations, which only quantised checkpoints have
  /// Files and folders with weights that lie beside A's and B's and are no part of them.
  std::vector<std::string> beside_a;
  std::vector<std::string> beside_b;
  std::string hint;  ///< what else may be tried
};

/// Compares every tensor of `a` with the one of the same name (or by the map) in `b`.
/// \error kBadInput, one line: an unreadable or malformed checkpoint or map, a map that does not
/// fit the two checkpoints, an unknown dtype to cast to.
Result<CompareResult> Compare(const std::string& a, const std::string& b,
                              const CompareOptions& options = {});

/// Holds the seals of two checkpoints against each other, by name, dtype, shape and digest, and
/// reads nothing of the checkpoints. Each path is a seal, or a checkpoint that has one.
/// \param options  the prefixes below_a and below_b alone. \error kBadInput: no seal, or a damaged
///   one.
Result<CompareResult> CompareSeals(const std::string& a, const std::string& b,
                                   const CompareOptions& options);

/// For a terminal: the verdict, the differences, names on one side only, what was compared.
std::string CompareText(const CompareResult& result);

/// The same for machines; each difference has a finding's keys.
nlohmann::json CompareJson(const CompareResult& result);

}  // namespace shardproof
