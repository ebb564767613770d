#include "verify/verdict/locate.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "verify/verdict/runs.h"
#include "verify/verdict/scope.h"
#include "verify/verdict/values.h"

namespace shardproof {
namespace {

/// Without block digests a whole tensor would be wanted; no run should record more than this of
/// one.
constexpr uint64_t kCaptureBytesMax = 64u << 20;
constexpr uint64_t kCaptureSpanBytes = 1 << 20;

/// The sum of the parts' blocks on their common grid; empty if there is none.
std::vector<Digest> SummedBlocks(const Image& image, uint64_t block_bytes, uint64_t block_count) {
  std::vector<Digest> sum(block_count);
  bool any = false;
  for (const Part& part : image.parts) {
    const BlockDigests& blocks = part.blocks();
    if (blocks.blocks.empty()) {
      // A rank that owns nothing needs no blocks; one that owns something makes the sum useless.
      if (part.descriptor != nullptr && part.descriptor->OwnedElements() == 0) continue;
      return {};
    }
    if (blocks.block_bytes != block_bytes) return {};
    for (size_t i = 0; i < blocks.blocks.size(); ++i) {
      const uint64_t at = blocks.first_block + i;
      if (at >= block_count) return {};
      sum[at] += blocks.blocks[i];
    }
    any = true;
  }
  return any ? sum : std::vector<Digest>{};
}

uint64_t GridOf(const Image& image) {
  for (const Part& part : image.parts) {
    if (part.blocks().block_bytes > 0 && !part.blocks().blocks.empty()) {
      return part.blocks().block_bytes;
    }
  }
  return 0;
}

/// Which blocks differ, of those that both sides have on one grid.
void FindBlocks(const Image& expected, const Image& seen, uint64_t image_bytes, Difference& found) {
  const uint64_t grid = GridOf(expected);
  if (grid == 0) return;
  const uint64_t count = (image_bytes + grid - 1) / grid;
  const std::vector<Digest> a = SummedBlocks(expected, grid, count);
  const std::vector<Digest> b = SummedBlocks(seen, grid, count);
  if (a.empty() || b.empty()) return;
  for (uint64_t i = 0; i < count; ++i) {
    if (a[i] != b[i]) found.blocks.push_back(i);
  }
  found.block_bytes = grid;
  found.block_count = count;
}

Stretch BytesOfBlock(const Difference& found, uint64_t block, uint64_t image_bytes) {
  return {block * found.block_bytes, std::min(image_bytes, (block + 1) * found.block_bytes)};
}

/// Ranks that own an element of bytes [begin, end).
std::vector<int64_t> Owners(const Image& image, Stretch bytes, uint64_t element_bytes) {
  std::vector<int64_t> ranks;
  const uint64_t begin = bytes.begin / element_bytes;
  const uint64_t end = (bytes.end + element_bytes - 1) / element_bytes;
  for (const Part& part : image.parts) {
    if (part.rank != nullptr && Touches(part.descriptor->owned, begin, end)) {
      ranks.push_back(part.rank->rank);
    }
  }
  return ranks;
}

/// Marks the ranks and counts the elements that differ in the bytes that both sides know, and
/// remembers the first.
class ByteComparison {
 public:
  ByteComparison(const Image& expected, const Image& seen, uint64_t element_bytes)
      : expected_(expected), element_bytes_(element_bytes) {
    for (const Part& part : seen.parts) {
      for (const ByteRange& range : part.bytes()) CompareRange(range, part);
    }
  }

  const std::set<uint64_t>& differing() const { return differing_; }
  const std::set<int64_t>& ranks() const { return ranks_; }
  const KnownBytes& expected() const { return expected_; }

 private:
  void CompareRange(const ByteRange& range, const Part& part) {
    for (const auto& [start, bytes] : expected_.stretches()) {
      const uint64_t begin = std::max(start, range.start);
      const uint64_t end = std::min(start + bytes.size(), range.start + range.bytes.size());
      if (begin >= end) continue;
      for (uint64_t at = begin; at < end; ++at) {
        if (bytes[at - start] == range.bytes[at - range.start]) continue;
        differing_.insert(at / element_bytes_);
        if (part.rank != nullptr) ranks_.insert(part.rank->rank);
        at = (at / element_bytes_ + 1) * element_bytes_ - 1;
      }
    }
  }

  KnownBytes expected_;
  uint64_t element_bytes_;
  std::set<uint64_t> differing_;
  std::set<int64_t> ranks_;
};

/// The cause of the difference around the first differing element, from as many bytes as both sides
/// know without a gap.
Explanation CauseFromBytes(const KnownBytes& expected, const KnownBytes& seen, uint64_t first_byte,
                           const Image& image, uint64_t element_bytes) {
  const auto around = [&](const KnownBytes& known) -> Stretch {
    auto after = known.stretches().upper_bound(first_byte);
    if (after == known.stretches().begin()) return {};
    --after;
    return {after->first, after->first + after->second.size()};
  };
  const Stretch a = around(expected);
  const Stretch b = around(seen);
  uint64_t begin = std::max(a.begin, b.begin);
  uint64_t end = std::min(a.end, b.end);
  begin = (begin + element_bytes - 1) / element_bytes * element_bytes;
  end = end / element_bytes * element_bytes;
  if (begin >= end) return {};
  return Explain(*expected.Read(begin, end - begin), *seen.Read(begin, end - begin), image.dtype,
                 image.shape, begin / element_bytes);
}

uint64_t Common(Stretch a, Stretch b) {
  const uint64_t begin = std::max(a.begin, b.begin);
  const uint64_t end = std::min(a.end, b.end);
  return begin < end ? end - begin : 0;
}

/// Whether all is known that the image has of some bytes: it may be a part of a tensor.
bool IsKnown(const KnownBytes& known, const Image& image, Stretch at, uint64_t element_bytes) {
  if (known.Read(at.begin, at.end - at.begin)) return true;
  uint64_t there = 0;
  for (const Part& part : image.parts) {
    const auto owned = part.descriptor ? Expand(part.descriptor->owned) : std::nullopt;
    if (!owned) return false;
    for (const Stretch& own : *owned) {
      there += Common({own.begin * element_bytes, own.end * element_bytes}, at);
    }
  }
  for (const auto& [start, bytes] : known.stretches()) {
    there -= Common({start, start + bytes.size()}, at);
  }
  return there == 0;
}

void NameElement(const Image& expected_image, const Image& seen_image, uint64_t element_bytes,
                 uint64_t image_bytes, Difference& found) {
  const ByteComparison bytes(expected_image, seen_image, element_bytes);
  const KnownBytes seen(seen_image);
  bool all_known = true;
  for (const uint64_t block : found.blocks) {
    const Stretch at = BytesOfBlock(found, block, image_bytes);
    const bool known = IsKnown(bytes.expected(), expected_image, at, element_bytes) &&
                       IsKnown(seen, seen_image, at, element_bytes);
    if (!known && found.wanted_length == 0) {
      found.wanted_start = at.begin;
      found.wanted_length = std::min(at.end - at.begin, kCaptureBytesMax);
    } else if (!known && at.end - found.wanted_start <= kCaptureSpanBytes) {
      // Near enough to come along: a cause such as two swapped rows shows only in all of it.
      found.wanted_length = at.end - found.wanted_start;
    }
    all_known = all_known && known;
  }
  found.differing_known = bytes.differing().size();
  if (all_known) found.differing = found.differing_known;
  if (bytes.differing().empty()) {
    found.contradiction = all_known;
    return;
  }
  // Blocks come in order: if the first one is known, its first differing element is the tensor's.
  const Stretch first_block = BytesOfBlock(found, found.blocks.front(), image_bytes);
  const uint64_t first = *bytes.differing().begin();
  if (found.wanted_length > 0 && found.wanted_start == first_block.begin) return;
  found.index = first;
  found.wanted_length = 0;
  found.ranks.assign(bytes.ranks().begin(), bytes.ranks().end());
  const uint64_t at = first * element_bytes;
  if (const auto text = bytes.expected().Read(at, element_bytes)) {
    found.expected = ElementText(expected_image.dtype, *text);
  }
  // Of the ranks that hold the element (several, if they overlap), one whose bytes are wrong.
  for (const Part& part : seen_image.parts) {
    Image one;
    one.parts = {part};
    const KnownBytes own(one);
    const auto text = own.Read(at, element_bytes);
    if (text && text != bytes.expected().Read(at, element_bytes)) {
      found.seen = ElementText(seen_image.dtype, *text);
      break;
    }
  }
  found.explanation = CauseFromBytes(bytes.expected(), seen, at, expected_image, element_bytes);
}

bool IsFill(const Digest& digest, const Digest& coverage, uint64_t byte) {
  return digest.lane0 == byte * coverage.lane0 && digest.lane1 == byte * coverage.lane1;
}

/// The digest of an image whose bytes are all b is b times its coverage: so poison and zeros show
/// without any bytes. Judges the parts of the ranks that are wrong.
Explanation FillFromDigests(const Image& seen, const std::vector<int64_t>& ranks) {
  bool poison = false;
  bool zeros = false;
  bool own_file = false;
  const bool has_wide_elements = ElementBytes(seen.dtype).value_or(1) > 1;
  for (const Part& part : seen.parts) {
    if (part.rank != nullptr &&
        std::find(ranks.begin(), ranks.end(), part.rank->rank) == ranks.end()) {
      continue;
    }
    const Digest digest = part.file != nullptr ? part.file->digest : part.state->digest;
    const Digest coverage = part.file != nullptr ? part.file->coverage : part.state->coverage;
    if (coverage == Digest()) continue;
    if (IsFill(digest, coverage, kPoisonByte)) {
      poison = true;
    } else if (IsFill(digest, coverage, 0)) {
      zeros = true;
    } else if (has_wide_elements && IsFill(digest, coverage, kOthersByte)) {
      own_file = true;
    } else if (ranks.size() == 1) {
      return {};
    }
  }
  if (poison) return NeverWritten();
  if (own_file) return OwnFile();
  return zeros ? Zeros() : Explanation();
}

/// Ranks whose part is wholly poison are wrong for sure; that narrows a list of possible ranks.
std::vector<int64_t> PoisonedRanks(const Image& seen) {
  std::vector<int64_t> ranks;
  for (const Part& part : seen.parts) {
    if (part.rank == nullptr || part.state->coverage == Digest()) continue;
    if (IsFill(part.state->digest, part.state->coverage, kPoisonByte)) {
      ranks.push_back(part.rank->rank);
    }
  }
  return ranks;
}

void NameRanks(const Image& seen, uint64_t element_bytes, uint64_t image_bytes, Difference& found) {
  std::set<int64_t> certain(found.ranks.begin(), found.ranks.end());
  std::set<int64_t> possible;
  for (const uint64_t block : found.blocks) {
    const std::vector<int64_t> owners =
        Owners(seen, BytesOfBlock(found, block, image_bytes), element_bytes);
    if (owners.size() == 1) certain.insert(owners[0]);
    possible.insert(owners.begin(), owners.end());
  }
  if (certain.empty()) {
    const std::vector<int64_t> poisoned = PoisonedRanks(seen);
    certain.insert(poisoned.begin(), poisoned.end());
  }
  if (certain.empty()) certain = possible;
  found.ranks.assign(certain.begin(), certain.end());
  if (found.ranks.empty()) found.ranks = seen.Ranks();
}

}  // namespace

std::optional<Difference> FindDifference(const Image& expected, const Image& seen) {
  Difference found;
  found.ranks = seen.Ranks();
  if (expected.dtype != seen.dtype) {
    found.kind = "dtype";
    found.expected = expected.dtype;
    found.seen = seen.dtype;
    return found;
  }
  if (expected.shape != seen.shape) {
    found.kind = "shape";
    found.expected = ShapeText(expected.shape);
    found.seen = ShapeText(seen.shape);
    return found;
  }
  if (expected.coverage != seen.coverage) {
    found.kind = "incomplete";
    found.explanation = {"incomplete",
                         "the ranks' parts do not make up the tensor: a gap, an overlap or a rank "
                         "that is absent"};
    return found;
  }
  const uint64_t element_bytes = ElementBytes(seen.dtype).value_or(1);
  const uint64_t image_bytes = ImageBytes(seen.dtype, seen.shape).value_or(0);
  FindBlocks(expected, seen, image_bytes, found);
  if (expected.digest == seen.digest && found.blocks.empty()) return std::nullopt;
  found.kind = "differs";
  if (found.blocks.empty()) {  // the whole tensor is one
    found.blocks = {0};
    found.block_bytes = image_bytes;
    found.block_count = 1;
  }
  found.ranks.clear();
  NameElement(expected, seen, element_bytes, image_bytes, found);
  NameRanks(seen, element_bytes, image_bytes, found);
  if (found.explanation.empty()) found.explanation = FillFromDigests(seen, found.ranks);
  return found;
}

namespace {

/// A cause that other tensors or other stages show: the digest equals something else that is known.
/// \param other  is set to the tensor whose value it is
Explanation CauseFromOtherDigests(const Comparison& comparison, const Image& seen,
                                  std::string& other) {
  const std::optional<uint64_t> bytes = ImageBytes(seen.dtype, seen.shape);
  for (const auto& [name, tensor] : comparison.evidence.oracle.source.tensors) {
    if (name != comparison.tensor && tensor.digest == seen.digest && bytes.has_value() &&
        ImageBytes(tensor.dtype, tensor.shape) == bytes) {
      other = name;
      return {"value-of-another", fmt::format("holds the value of {}", name)};
    }
  }
  // Stages in the order in which the first rank of the image reached them.
  if (seen.parts.empty() || seen.parts[0].rank == nullptr) return {};
  for (const StageRecord& stage : seen.parts[0].rank->stages) {
    const std::string key = stage.Key();
    if (key == comparison.stage.text()) break;
    for (const Image& earlier : ImagesOf(comparison.phase, key, comparison.tensor)) {
      if (earlier.defined && earlier.digest == seen.digest && earlier.coverage == seen.coverage &&
          earlier.dtype == seen.dtype) {
        return {"already", fmt::format("had this value already at `{}`", key)};
      }
    }
  }
  return {};
}

std::string Where(const Comparison& comparison, const std::vector<int64_t>& ranks) {
  const std::string scope = ranks.empty() ? "" : " on " + ScopeLine(comparison.phase, ranks);
  return fmt::format("{} at `{}` of phase {}{}", comparison.tensor, comparison.stage.text(),
                     comparison.phase.name(), scope);
}

std::string DescribeBlocks(const Difference& difference) {
  if (difference.block_count <= 1) return "";
  return fmt::format(", in {} of {} blocks of {} bytes, first block {}", difference.blocks.size(),
                     difference.block_count, difference.block_bytes, difference.blocks[0]);
}

std::string CountText(const Difference& difference) {
  if (difference.differing == 1u) return "; no other element differs";
  if (difference.differing) return fmt::format("; {} elements differ", *difference.differing);
  return fmt::format("; at least {} elements differ{}", difference.differing_known,
                     DescribeBlocks(difference));
}

std::string Message(const Comparison& comparison, const Difference& difference,
                    const std::vector<int64_t>& shape) {
  const std::string where = Where(comparison, difference.ranks);
  const std::string cause =
      difference.explanation.empty() ? "" : fmt::format(" ({})", difference.explanation.text);
  if (difference.kind == "dtype" || difference.kind == "shape") {
    return fmt::format("{}: {} is {}, {} has {}", where, difference.kind, difference.seen,
                       comparison.against.Words(), difference.expected);
  }
  if (difference.kind == "incomplete") {
    return fmt::format("{}: cannot be compared with {}{}", where, comparison.against.Words(),
                       cause);
  }
  if (difference.index) {
    return fmt::format("{} differs from {}: {} is {}, expected {}{}{}", where,
                       comparison.against.Words(), ElementName(*difference.index, shape),
                       difference.seen, difference.expected, CountText(difference), cause);
  }
  return fmt::format("{} differs from {}{}{}", where, comparison.against.Words(),
                     DescribeBlocks(difference), cause);
}

void Request(const Comparison& comparison, const Difference& difference, Finding& finding) {
  if (difference.wanted_length == 0) return;
  std::vector<Phase> phases = comparison.capture_phases;
  if (phases.empty()) phases = {comparison.phase.phase};
  for (const Phase phase : phases) {
    finding.wanted.push_back(
        {phase, comparison.tensor, difference.wanted_start, difference.wanted_length});
  }
}

Finding ToFinding(const Comparison& comparison, Difference difference, const Image& seen) {
  Finding finding;
  finding.kind = difference.kind;
  finding.phase = comparison.phase.phase;
  finding.stage = comparison.stage;
  finding.tensor = comparison.tensor;
  finding.ranks = difference.ranks;
  finding.index = difference.index;
  if (difference.index) finding.coordinates = CoordinatesOf(*difference.index, seen.shape);
  finding.differing = difference.differing;
  finding.expected = difference.expected;
  finding.seen = difference.seen;
  if (difference.kind == "differs") {
    // Fills explain themselves; anything else is best explained by what it equals.
    const std::string& cause = difference.explanation.cause;
    const bool is_fill = cause == NeverWritten().cause || cause == Zeros().cause;
    if (!is_fill) {
      const Explanation better = CauseFromOtherDigests(comparison, seen, finding.facts.other);
      if (!better.empty()) difference.explanation = better;
    }
    if (difference.contradiction) {
      difference.explanation = {"recording",
                                "every recorded byte is as expected, so a digest or the recording "
                                "is wrong"};
      finding.facts.other.clear();
      finding.failure_class = "verifier";
    }
  }
  finding.facts.against = comparison.against;
  finding.facts.cause = difference.explanation.cause;
  finding.explanation = difference.explanation.text;
  Request(comparison, difference, finding);
  finding.message = Message(comparison, difference, seen.shape);
  return finding;
}

bool Alike(const Finding& a, const Finding& b) {
  return a.kind == b.kind && a.index == b.index && a.differing == b.differing && a.seen == b.seen &&
         a.explanation == b.explanation;
}

}  // namespace

std::string ElementName(uint64_t index, const std::vector<int64_t>& shape) {
  if (shape.size() < 2) return fmt::format("element {}", index);
  return fmt::format("element {} at {}", index, ShapeText(CoordinatesOf(index, shape)));
}

std::optional<Finding> Compare(const Comparison& comparison, const Image& expected,
                               const Image& seen) {
  std::optional<Difference> difference = FindDifference(expected, seen);
  if (!difference) return std::nullopt;
  return ToFinding(comparison, std::move(*difference), seen);
}

std::vector<Finding> CompareAll(const Comparison& comparison, const Image& expected,
                                const std::vector<Image>& seen) {
  struct Group {
    Difference difference;
    Finding finding;
    const Image* image;
  };
  std::vector<Group> groups;
  for (const Image& image : seen) {
    std::optional<Difference> difference = FindDifference(expected, image);
    if (!difference) continue;
    Finding finding = ToFinding(comparison, *difference, image);
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return Alike(group.finding, finding);
    });
    if (same == groups.end()) {
      groups.push_back({std::move(*difference), std::move(finding), &image});
      continue;
    }
    std::vector<int64_t>& ranks = same->difference.ranks;
    ranks.insert(ranks.end(), difference->ranks.begin(), difference->ranks.end());
  }
  std::vector<Finding> findings;
  for (Group& group : groups) {
    group.difference.ranks = Sorted(std::move(group.difference.ranks));
    findings.push_back(ToFinding(comparison, std::move(group.difference), *group.image));
  }
  return findings;
}

std::vector<Finding> CompareWithReplicas(const Comparison& comparison,
                                         const std::vector<Image>& replicas,
                                         const std::vector<Image>& seen) {
  if (WhyItVaries(replicas).empty()) return CompareAll(comparison, replicas[0], seen);
  std::vector<Image> others;
  for (const Image& image : seen) {
    const bool is_right = std::any_of(replicas.begin(), replicas.end(),
                                      [&](const Image& one) { return AreEqual(one, image); });
    if (!is_right) others.push_back(image);
  }
  return CompareAll(comparison, replicas[0], others);
}

}  // namespace shardproof
