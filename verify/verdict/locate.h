// The machinery by which properties find and name a difference between what a tensor should be and
// what ranks (or a file) hold: from digests to blocks, from blocks to ranks, and from recorded
// bytes to the exact first element. Where the bytes were not recorded, it says which ones to
// record.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verify/verdict/explain.h"
#include "verify/verdict/finding.h"
#include "verify/verdict/image.h"

namespace shardproof {

/// How one image differs from what it should be.
struct Difference {
  std::string kind;  ///< "dtype", "shape", "incomplete" (coverage) or "differs"
  std::vector<int64_t>
      ranks;  ///< that hold what is wrong; for a block of several ranks, all of them
  std::optional<uint64_t>
      index;  ///< global element index of the first difference, if bytes show it
  std::string expected;
  std::string seen;
  std::optional<uint64_t> differing;  ///< elements, if the bytes of all differing blocks are known
  uint64_t differing_known = 0;       ///< elements that differ in the bytes that are known
  Explanation explanation;
  uint64_t block_bytes = 0;
  uint64_t block_count = 0;
  std::vector<uint64_t> blocks;  ///< numbers of the differing blocks
  uint64_t wanted_start = 0;     ///< bytes to record, if `index` is not known
  uint64_t wanted_length = 0;
  bool contradiction = false;  ///< all bytes are known and equal, yet the digests differ
};

/// How `seen` differs from `expected`, or nullopt if dtype, shape, coverage and digests are equal:
/// that of the whole and, which is made another way, that of each block that both have.
/// \pre both are defined.
std::optional<Difference> FindDifference(const Image& expected, const Image& seen);

/// What is being compared, for names and causes.
struct Comparison {
  const Evidence& evidence;
  const PhaseEvidence& phase;
  StageKey stage;
  std::string tensor;
  Against against;
  /// Phases whose ranks must record the wanted bytes. Empty: `phase`.
  std::vector<Phase> capture_phases;
};

/// The finding for how `seen` differs from `expected`; nullopt if it does not.
std::optional<Finding> Compare(const Comparison& comparison, const Image& expected,
                               const Image& seen);

/// Compares every image with `expected`. Images with the same difference become one finding, with
/// the ranks of all of them.
std::vector<Finding> CompareAll(const Comparison& comparison, const Image& expected,
                                const std::vector<Image>& seen);

/// As CompareAll against the first of several replicas, which are equal. Where ranks may have
/// values of their own, each of the replicas is right. \pre there is one.
std::vector<Finding> CompareWithReplicas(const Comparison& comparison,
                                         const std::vector<Image>& replicas,
                                         const std::vector<Image>& seen);

/// "element 17 at [5, 2]", "element 0" for a 0-dim tensor.
std::string ElementName(uint64_t index, const std::vector<int64_t>& shape);

}  // namespace shardproof
