#include "verify/compare/diagnose.h"

#include <fmt/format.h>

#include <algorithm>

#include "verify/compare/explain.h"
#include "verify/compare/streams.h"
#include "verify/oracle/quote.h"

namespace shardproof::compare {
namespace {

constexpr uint64_t kHeadElements = 512;

Result<std::string> Head(TensorReader& reader) {
  const uint64_t count = std::min(kHeadElements, reader.elements());
  std::string head(count * reader.width(), '\0');
  SP_TRY(reader.Read(0, count, head.data()));
  return head;
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

}  // namespace

Result<std::string> FindSameValues(const Checkpoint& a, const Checkpoint& b,
                                   const TensorPair& pair) {
  const formats::StoredTensor& in_b = *b.Find(pair.b_name);
  const Reader seen = b.Read(in_b);
  SP_ASSIGN(const std::string head, Head(*seen));
  const size_t width = seen->width();
  const bool one_value = head.size() <= width ||
                         head.compare(width, std::string::npos, head, 0, head.size() - width) == 0;
  if (one_value) return std::string();
  for (const formats::StoredTensor& in_a : a.tensors()) {
    const bool own = pair.parts.size() == 1 && in_a.name == pair.parts[0];
    if (own || in_a.dtype != in_b.dtype || in_a.shape != in_b.shape) continue;
    const Reader other = a.Read(in_a);
    SP_ASSIGN(const std::string other_head, Head(*other));
    if (other_head != head) continue;
    SP_ASSIGN(const bool same, AreEqual(*other, *seen));
    if (same) return in_a.name;
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

Result<std::string> DiagnoseShape(TensorReader& a, TensorReader& b) {
  if (&a.dtype() != &b.dtype() || a.elements() != b.elements()) return std::string();
  const std::vector<int64_t> reversed(a.shape().rbegin(), a.shape().rend());
  if (a.shape().size() == 2 && b.shape() == reversed) {
    SP_ASSIGN(const bool transposed, LooksTransposed(a, b));
    if (transposed) {
      return std::string("transposed: a map with a transpose of dims 0 and 1 would pair them");
    }
  }
  SP_ASSIGN(const bool same, AreEqual(a, b));
  return std::string(same ? "the same elements in the same order: only the shape differs" : "");
}

}  // namespace shardproof::compare
