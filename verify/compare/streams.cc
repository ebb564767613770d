#include "verify/compare/streams.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <vector>

#include "verify/oracle/digest_scalar.h"

namespace shardproof::compare {
namespace {

// Both pieces stay in the second-level cache: comparing then costs little beside reading.
constexpr uint64_t kPieceBytes = 256u << 10;

bool BothNan(const oracle::DtypeInfo& dtype, const char* a, const char* b) {
  if (dtype.kind != oracle::NumberKind::kFloat) return false;
  const auto is_nan = [&](const char* element) {
    const uint64_t bits = oracle::LoadBits(element, dtype.bytes);
    return oracle::Classify(dtype.format, bits) == oracle::FloatClass::kNan;
  };
  return is_nan(a) && is_nan(b);
}

/// Counts within one piece whose first element is `start`.
void CountPiece(const oracle::DtypeInfo& dtype, const char* a, const char* b, uint64_t start,
                uint64_t count, bool nan_equal, Difference& difference) {
  const uint64_t width = static_cast<uint64_t>(dtype.bytes);
  for (uint64_t i = 0; i < count; ++i) {
    const char* x = a + i * width;
    const char* y = b + i * width;
    if (oracle::LoadBits(x, dtype.bytes) == oracle::LoadBits(y, dtype.bytes)) continue;
    if (nan_equal && BothNan(dtype, x, y)) continue;
    if (difference.differing++ > 0) continue;
    difference.first = start + i;
    difference.expected.assign(x, width);
    difference.seen.assign(y, width);
  }
}

/// Calls visit(start, count, a's bytes, b's bytes, equal) piece by piece, from element `begin` to
/// `end`, until it returns false.
template <typename Visit>
Status Walk(TensorReader& a, TensorReader& b, uint64_t begin, uint64_t end, Visit visit) {
  const uint64_t width = b.width();
  const uint64_t piece = kPieceBytes / width;
  std::vector<char> from_a(std::min(piece, end - begin) * width);
  std::vector<char> from_b(from_a.size());
  for (uint64_t start = begin; start < end; start += piece) {
    const uint64_t count = std::min(piece, end - start);
    SP_TRY(a.Read(start, count, from_a.data()));
    SP_TRY(b.Read(start, count, from_b.data()));
    const bool equal = std::memcmp(from_a.data(), from_b.data(), count * width) == 0;
    if (!visit(start, count, from_a.data(), from_b.data(), equal)) break;
  }
  return Ok();
}

Result<Difference> CountBetween(TensorReader& a, TensorReader& b, uint64_t begin, uint64_t end,
                                bool nan_equal) {
  Difference difference;
  const auto count_piece = [&](uint64_t start, uint64_t count, const char* x, const char* y,
                               bool equal) {
    if (!equal) CountPiece(b.dtype(), x, y, start, count, nan_equal, difference);
    return true;
  };
  SP_TRY(Walk(a, b, begin, end, count_piece));
  return difference;
}

}  // namespace

Result<Difference> CountDifferences(TensorReader& a, TensorReader& b, bool nan_equal) {
  return CountBetween(a, b, 0, b.elements(), nan_equal);
}

Result<Difference> CountDifferences(
    const std::function<std::pair<maps::Reader, maps::Reader>()>& open, uint64_t elements,
    uint64_t thread_count, bool nan_equal) {
  std::vector<Difference> found(thread_count);
  std::vector<Status> outcomes(thread_count, Ok());
  const auto count_one = [&](uint64_t i) -> Status {
    const auto [a, b] = open();
    SP_ASSIGN(found[i], CountBetween(*a, *b, elements * i / thread_count,
                                     elements * (i + 1) / thread_count, nan_equal));
    return Ok();
  };
  std::vector<std::thread> threads;
  for (uint64_t i = 1; i < thread_count; ++i)
    threads.emplace_back([&, i] { outcomes[i] = count_one(i); });
  outcomes[0] = count_one(0);
  for (std::thread& thread : threads) thread.join();
  Difference whole;
  for (uint64_t i = 0; i < thread_count; ++i) {
    SP_TRY(outcomes[i]);
    const uint64_t differing = whole.differing + found[i].differing;
    if (!whole.first) whole = std::move(found[i]);
    whole.differing = differing;
  }
  return whole;
}

Result<bool> AreEqual(TensorReader& a, TensorReader& b) {
  if (a.width() != b.width() || a.elements() != b.elements()) return false;
  bool all_equal = true;
  SP_TRY(Walk(a, b, 0, b.elements(), [&](uint64_t, uint64_t, const char*, const char*, bool equal) {
    all_equal = equal;
    return equal;
  }));
  return all_equal;
}

Result<bool> LooksTransposed(TensorReader& a, TensorReader& b) {
  constexpr uint64_t kProbes = 512;
  if (a.shape().size() != 2 || a.elements() == 0) return false;
  const uint64_t rows = static_cast<uint64_t>(a.shape()[0]);
  const uint64_t columns = static_cast<uint64_t>(a.shape()[1]);
  std::array<char, 8> first{};
  std::array<char, 8> in_a{};
  std::array<char, 8> in_b{};
  bool varied = false;
  for (uint64_t probe = 0; probe < kProbes; ++probe) {
    const uint64_t row = oracle::Mix(2 * probe) % rows;
    const uint64_t column = oracle::Mix(2 * probe + 1) % columns;
    SP_TRY(a.Read(row * columns + column, 1, in_a.data()));
    SP_TRY(b.Read(column * rows + row, 1, in_b.data()));
    if (in_a != in_b) return false;
    if (probe == 0) first = in_a;
    varied = varied || in_a != first;
  }
  return varied;
}

}  // namespace shardproof::compare
