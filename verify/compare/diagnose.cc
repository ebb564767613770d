#include "verify/compare/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "src/text/amounts.h"
#include "verify/compare/explain.h"
#include "verify/compare/streams.h"
#include "verify/oracle/quote.h"

namespace shardproof::compare {
namespace {

constexpr uint64_t kHeadElements = 512;
constexpr uint64_t kFewPart = 10;  // fewer than one in ten elements are few

Result<std::string> Head(TensorReader& reader) {
  const uint64_t count = std::min(kHeadElements, reader.elements());
  std::string head(count * reader.width(), '\0');
  SP_TRY(reader.Read(0, count, head.data()));
  return head;
}

/// Over and over: such a beginning is that of many tensors.
bool IsOneValue(const std::string& head, size_t width) {
  return head.size() <= width ||
         head.compare(width, std::string::npos, head, 0, head.size() - width) == 0;
}

/// Where to look in a tensor too large to look at whole: from the row of the first difference on.
uint64_t WindowStart(const TensorReader& reader, uint64_t first, uint64_t count) {
  const uint64_t latest = reader.elements() - count;
  const std::vector<int64_t>& shape = reader.shape();
  const uint64_t row =
      shape.empty() || shape[0] == 0 ? 1 : reader.elements() / static_cast<uint64_t>(shape[0]);
  // Some rows before it, so that a stretch that begins there is seen to begin.
  const uint64_t aligned = row == 0 || row * 4 > count ? first : first / row * row;
  const uint64_t before = row * 4 > count ? count / 4 : row;
  return std::min(latest, aligned > before ? aligned - before : 0);
}

/// What stands behind row `rows` of the longer one, and the value of with= that makes it; empty:
/// something else.
struct Rest {
  std::string what;
  std::string with;
};

Result<Rest> DescribeRest(const Inputs& inputs, const maps::ViewPtr& longer, size_t dim,
                          int64_t rows) {
  SP_ASSIGN(const maps::ViewPtr kept, maps::Narrow(longer, dim, 0, rows));
  SP_ASSIGN(const maps::ViewPtr repeated, maps::PadWithLast(kept, dim, longer->shape[dim]));
  SP_ASSIGN(const bool repeats, AreEqual(*inputs.Open(*repeated), *inputs.Open(*longer)));
  if (repeats) return Rest{fmt::format("repeat row {}", rows - 1), "last"};
  const auto zeros = maps::PadWithValue(kept, dim, longer->shape[dim], 0);
  if (!zeros.ok()) return Rest{};
  SP_ASSIGN(const bool zero, AreEqual(*inputs.Open(*zeros.value()), *inputs.Open(*longer)));
  return zero ? Rest{"are zero", "0"} : Rest{};
}

/// ", but for 1 element, the first is element 13", where few of two differ; empty if many do, or if
/// they are too large to be looked at. \pre a and b have one shape and dtype.
Result<std::string> DescribeFew(TensorReader& a, TensorReader& b) {
  const uint64_t width = a.width(), elements = a.elements();
  if (elements > kExplainBytesMax / width) return std::string();
  std::string expected(elements * width, '\0'), seen(elements * width, '\0');
  SP_TRY(a.Read(0, elements, expected.data()));
  SP_TRY(b.Read(0, elements, seen.data()));
  uint64_t count = 0, first = 0;
  for (uint64_t i = elements; i-- > 0;) {
    if (expected.compare(i * width, width, seen, i * width, width) == 0) continue;
    ++count;
    first = i;
  }
  if (count == 0 || count > elements / kFewPart) return std::string();
  return fmt::format(", but for {}, the first is element {}", Count(count, "element"), first);
}

/// What has the shape of both but in one dim, along which one is longer.
struct Lengths {
  maps::ViewPtr longer, shorter;
  size_t dim = 0;
  int64_t rows = 0;  ///< of the shorter one
  int64_t more = 0;  ///< that the longer one has

  std::string What() const { return dim == 0 ? "rows" : fmt::format("rows of dim {}", dim); }
};

std::optional<Lengths> LengthsOf(const maps::ViewPtr& a, const maps::ViewPtr& b) {
  const bool may_be = a->shape.size() == b->shape.size() && a->Elements() > 0 && b->Elements() > 0;
  if (!may_be || a->shape.empty()) return std::nullopt;
  Lengths lengths;
  while (a->shape[lengths.dim] == b->shape[lengths.dim]) ++lengths.dim;
  std::vector<int64_t> shape = a->shape;
  shape[lengths.dim] = b->shape[lengths.dim];
  lengths.rows = std::min(a->shape[lengths.dim], b->shape[lengths.dim]);
  lengths.more = std::max(a->shape[lengths.dim], b->shape[lengths.dim]) - lengths.rows;
  if (shape != b->shape || lengths.rows == 0 || lengths.more > (1 << 20)) return std::nullopt;
  lengths.longer = a->shape[lengths.dim] > lengths.rows ? a : b;
  lengths.shorter = lengths.longer == a ? b : a;
  return lengths;
}

/// Along that dim, the one begins with the other.
Result<std::string> DiagnoseLength(const Inputs& inputs, const Lengths& lengths, bool b_is_longer) {
  const auto& [longer, shorter, dim, rows, more] = lengths;
  const auto kept = maps::Narrow(longer, dim, 0, rows);
  if (!kept.ok()) return std::string();
  SP_ASSIGN(const bool same, AreEqual(*inputs.Open(*shorter), *inputs.Open(*kept.value())));
  std::string few;
  if (!same) {
    SP_ASSIGN(few, DescribeFew(*inputs.Open(*shorter), *inputs.Open(*kept.value())));
  }
  if (!same && few.empty()) return std::string();
  if (!b_is_longer) {
    return fmt::format("B's are the first {} {} of A's {}{}: {} are missing", rows, lengths.What(),
                       rows + more, few, more);
  }
  SP_ASSIGN(const Rest rest, DescribeRest(inputs, longer, dim, rows));
  const std::string begin =
      fmt::format("the first {} {} are A's{}, {} more ", rows, lengths.What(), few, more);
  if (rest.what.empty()) return begin + "hold something else";
  return begin + fmt::format("{}: a map with pad(..., {}with={}) would pair them", rest.what,
                             dim == 0 ? "" : fmt::format("dim={}, ", dim), rest.with);
}

/// Along that dim, the one is a stretch of the other, as another rank's shard is.
Result<std::string> DiagnoseStretch(const Inputs& inputs, const Lengths& lengths,
                                    bool b_is_longer) {
  constexpr int64_t kAllMax = 256;  // of more rows than these, the stretches of ranks and the last
  constexpr size_t kTriedMax = 1024;
  const auto& [longer, shorter, dim, rows, more] = lengths;
  std::set<int64_t> starts = {more};
  const int64_t step = more <= kAllMax ? 1 : rows;
  for (int64_t start = step; start < more && starts.size() < kTriedMax; start += step)
    starts.insert(start);
  for (const int64_t start : starts) {
    const auto part = maps::Narrow(longer, dim, start, rows);
    if (!part.ok()) break;
    SP_ASSIGN(const bool same, AreEqual(*inputs.Open(*shorter), *inputs.Open(*part.value())));
    if (!same) continue;
    return fmt::format("{} are {} {} to {} of {} {}", b_is_longer ? "A's" : "B's", lengths.What(),
                       start, start + rows - 1, b_is_longer ? "B's" : "A's", rows + more);
  }
  return std::string();
}

constexpr const char* kTransposed = "transposed: a map with transpose(...) would pair them";

/// Of more than two dims: the last two are swapped.
Result<bool> AreMatricesTransposed(const Inputs& inputs, const maps::ViewPtr& a,
                                   const maps::ViewPtr& b) {
  const size_t rank = a->shape.size();
  if (rank < 3) return false;
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[rank - 1], order[rank - 2]);
  const auto turned = maps::Permute(a, order);
  if (!turned.ok() || turned.value()->shape != b->shape) return false;
  return AreEqual(*inputs.Open(*turned.value()), *inputs.Open(*b));
}

}  // namespace

Result<bool> BeginsWithOneValue(const Inputs& inputs, const maps::View& view) {
  const Reader reader = inputs.Open(view);
  SP_ASSIGN(const std::string head, Head(*reader));
  return IsOneValue(head, reader->width());
}

Result<std::string> FindSameValues(const Inputs& inputs, const Checkpoint& among,
                                   const maps::View& view, const std::string& own) {
  const Reader seen = inputs.Open(view);
  SP_ASSIGN(const std::string head, Head(*seen));
  if (IsOneValue(head, seen->width())) return std::string();
  for (const formats::StoredTensor& one : among.tensors()) {
    if (one.name == own || one.dtype != view.dtype->name || one.shape != view.shape) continue;
    const Reader other = among.Read(one);
    SP_ASSIGN(const std::string other_head, Head(*other));
    if (other_head != head) continue;
    SP_ASSIGN(const bool same, AreEqual(*other, *seen));
    if (same) return one.name;
  }
  return std::string();
}

Result<std::string> DiagnoseValues(TensorReader& a, TensorReader& b, uint64_t first) {
  const uint64_t count = std::min(b.elements(), kExplainBytesMax / b.width());
  const uint64_t start = count == b.elements() ? 0 : WindowStart(b, first, count);
  if (count < b.elements() && b.shape().size() == 2 && b.shape()[0] == b.shape()[1]) {
    SP_ASSIGN(const bool transposed, LooksTransposed(a, b));
    if (transposed) return std::string("transposed (judged by 512 elements throughout the tensor)");
  }
  std::string expected(count * b.width(), '\0');
  std::string seen(count * b.width(), '\0');
  SP_TRY(a.Read(start, count, expected.data()));
  SP_TRY(b.Read(start, count, seen.data()));
  return Explain({expected, seen, b.dtype().name, b.shape(), start});
}

Result<std::string> DiagnoseShape(const Inputs& inputs, const maps::ViewPtr& a,
                                  const maps::ViewPtr& b) {
  if (a->dtype != b->dtype || a->Computes()) return std::string();
  if (const auto lengths = LengthsOf(a, b)) {
    SP_ASSIGN(const std::string begins, DiagnoseLength(inputs, *lengths, lengths->longer == b));
    if (!begins.empty()) return begins;
    return DiagnoseStretch(inputs, *lengths, lengths->longer == b);
  }
  if (a->Elements() != b->Elements()) return std::string();
  const Reader in_a = inputs.Open(*a);
  const Reader in_b = inputs.Open(*b);
  const std::vector<int64_t> reversed(a->shape.rbegin(), a->shape.rend());
  if (a->shape.size() == 2 && b->shape == reversed) {
    SP_ASSIGN(const bool transposed, LooksTransposed(*in_a, *in_b));
    if (transposed) {
      return std::string(kTransposed);
    }
  }
  SP_ASSIGN(const bool of_matrices, AreMatricesTransposed(inputs, a, b));
  if (of_matrices) return std::string(kTransposed);
  SP_ASSIGN(const bool same, AreEqual(*in_a, *in_b));
  return std::string(same ? "the same elements in the same order: only the shape differs" : "");
}

}  // namespace shardproof::compare
