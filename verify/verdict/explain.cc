#include "verify/verdict/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>

#include "verify/verdict/values.h"

namespace shardproof {
namespace {

/// Both sides cut into elements.
struct Window {
  std::string_view expected;
  std::string_view seen;
  std::string_view dtype;
  const std::vector<int64_t>& shape;
  uint64_t start_index;
  uint64_t element_bytes;
  std::vector<uint64_t> differing;  ///< elements within the window

  uint64_t ElementCount() const { return expected.size() / element_bytes; }
  std::string_view Expected(uint64_t i) const {
    return expected.substr(i * element_bytes, element_bytes);
  }
  std::string_view Seen(uint64_t i) const { return seen.substr(i * element_bytes, element_bytes); }
};

std::optional<Window> Cut(std::string_view expected, std::string_view seen, std::string_view dtype,
                          const std::vector<int64_t>& shape, uint64_t start_index) {
  const uint64_t element_bytes = ElementBytes(dtype).value_or(1);
  if (expected.size() != seen.size() || expected.size() % element_bytes != 0) return std::nullopt;
  Window window{expected, seen, dtype, shape, start_index, element_bytes, {}};
  for (uint64_t i = 0; i < window.ElementCount(); ++i) {
    if (window.Expected(i) != window.Seen(i)) window.differing.push_back(i);
  }
  if (window.differing.empty()) return std::nullopt;
  return window;
}

bool AllBytesAre(std::string_view bytes, unsigned char value) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [&](char c) { return static_cast<unsigned char>(c) == value; });
}

/// What LibTorch's allocator leaves in fresh memory when it is told to fill it with junk, from any
/// byte of the pattern on: the poison of a Python subject's values runs.
bool IsAllocatorJunk(std::string_view bytes) {
  constexpr std::string_view kPattern = "\xef\xbe\xed\x7f";
  for (size_t shift = 0; shift < kPattern.size(); ++shift) {
    bool same = true;
    for (size_t i = 0; i < bytes.size() && same; ++i) {
      same = bytes[i] == kPattern[(i + shift) % kPattern.size()];
    }
    if (same) return true;
  }
  return false;
}

Explanation FillOf(const Window& window) {
  const auto every = [&](unsigned char value) {
    return std::all_of(window.differing.begin(), window.differing.end(),
                       [&](uint64_t i) { return AllBytesAre(window.Seen(i), value); });
  };
  const bool junk = std::all_of(window.differing.begin(), window.differing.end(),
                                [&](uint64_t i) { return IsAllocatorJunk(window.Seen(i)); });
  if (junk || every(kPoisonByte)) return NeverWritten();
  if (every(0)) return Zeros();
  if (window.element_bytes > 1 && every(kOthersByte)) return OwnFile();
  return {};
}

Explanation FlippedBit(const Window& window) {
  int flipped = 0;
  size_t at = 0;
  unsigned bit = 0;
  for (size_t i = 0; i < window.expected.size() && flipped <= 1; ++i) {
    const unsigned change = static_cast<unsigned char>(window.expected[i] ^ window.seen[i]);
    if (change == 0) continue;
    flipped += std::popcount(change);
    at = i;
    bit = std::countr_zero(change);
  }
  if (flipped != 1) return {};
  const uint64_t element = at / window.element_bytes;
  return {"flipped-bit",
          fmt::format("one flipped bit: bit {} of element {}",
                      8 * (at % window.element_bytes) + bit, window.start_index + element)};
}

Explanation SwappedBytes(const Window& window) {
  if (window.element_bytes == 1) return {};
  for (uint64_t i = 0; i < window.ElementCount(); ++i) {
    const std::string_view expected = window.Expected(i);
    if (!std::equal(expected.rbegin(), expected.rend(), window.Seen(i).begin())) return {};
  }
  return {"byte-order", "bytes in the opposite order (endianness)"};
}

float FloatOf(std::string_view bytes, bool is_bf16) {
  if (is_bf16) {
    uint16_t half = 0;
    std::memcpy(&half, bytes.data(), sizeof half);
    return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
  }
  float value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

float FromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

/// Whether all of `seen` is what `convert` makes of `expected`. F32 and BF16 only.
template <typename Convert>
bool AllConverted(const Window& window, Convert&& convert) {
  const bool is_bf16 = window.dtype == "BF16";
  for (uint64_t i = 0; i < window.ElementCount(); ++i) {
    const float made = convert(FloatOf(window.Expected(i), is_bf16));
    const float seen = FloatOf(window.Seen(i), is_bf16);
    const float kept = is_bf16 ? FromBf16(RoundToBf16(made)) : made;
    if (std::bit_cast<uint32_t>(kept) != std::bit_cast<uint32_t>(seen)) return false;
  }
  return true;
}

Explanation Rounded(const Window& window) {
  if (window.dtype == "F64") {
    for (uint64_t i = 0; i < window.ElementCount(); ++i) {
      const double value = *ElementValue("F64", window.Expected(i));
      if (*ElementValue("F64", window.Seen(i)) != static_cast<float>(value)) return {};
    }
    return {"rounded-F32", "rounded through F32"};
  }
  if (window.dtype == "F16") {
    for (uint64_t i = 0; i < window.ElementCount(); ++i) {
      const float value = static_cast<float>(*ElementValue("F16", window.Expected(i)));
      if (*ElementValue("F16", window.Seen(i)) != RoundThroughF16(FromBf16(RoundToBf16(value)))) {
        return {};
      }
    }
    return {"rounded-BF16", "rounded through BF16"};
  }
  if (window.dtype != "F32" && window.dtype != "BF16") return {};
  if (AllConverted(window, RoundThroughF16)) return {"rounded-F16", "rounded through F16"};
  if (window.dtype != "F32") return {};
  if (AllConverted(window, [](float x) { return FromBf16(RoundToBf16(x)); })) {
    return {"rounded-BF16", "rounded through BF16"};
  }
  const auto truncate = [](float x) {
    return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000u);
  };
  if (!AllConverted(window, truncate)) return {};
  return {"truncated-BF16", "truncated to BF16"};
}

Explanation Transposed(const Window& window) {
  if (window.shape.size() != 2 || window.start_index != 0) return {};
  const auto rows = static_cast<uint64_t>(window.shape[0]);
  const auto columns = static_cast<uint64_t>(window.shape[1]);
  if (rows < 2 || columns < 2 || window.ElementCount() != rows * columns) return {};
  for (uint64_t i = 0; i < rows * columns; ++i) {
    // Element i of the transposed matrix [columns, rows].
    if (window.Seen(i) != window.Expected(i % rows * columns + i / rows)) return {};
  }
  return {"transposed", "transposed"};
}

Explanation DescribeMoves(const std::vector<std::pair<uint64_t, uint64_t>>& moves,
                          const std::string& what) {
  const auto [first, first_from] = moves[0];
  if (moves.size() == 2 && moves[1].first == first_from && moves[1].second == first) {
    return {"swapped", fmt::format("{}s {} and {} swapped", what, first, first_from)};
  }
  const int64_t by = static_cast<int64_t>(first_from) - static_cast<int64_t>(first);
  const bool shifted = std::all_of(moves.begin(), moves.end(), [&](const auto& move) {
    return static_cast<int64_t>(move.second) - static_cast<int64_t>(move.first) == by;
  });
  if (shifted && moves.size() > 1) {
    return {"shifted", fmt::format("shifted: {0}s {1} to {2} hold {0}s {3} to {4}", what, first,
                                   moves.back().first, first_from, moves.back().second)};
  }
  return {"moved", fmt::format("{0}s moved: {0} {1} holds {0} {2}{3}", what, first, first_from,
                               moves.size() > 1 ? ", and so on" : "")};
}

/// Rows are slices along dim 0 (elements, for one dim): whether each differing one holds what
/// another should.
Explanation MovedRows(const Window& window) {
  if (window.shape.empty() || window.shape[0] < 2) return {};
  uint64_t row_elements = 1;
  for (size_t dim = 1; dim < window.shape.size(); ++dim) row_elements *= window.shape[dim];
  if (row_elements == 0) return {};
  const uint64_t row_bytes = row_elements * window.element_bytes;
  const uint64_t row_begin = (window.start_index + row_elements - 1) / row_elements;
  const uint64_t row_end = (window.start_index + window.ElementCount()) / row_elements;
  const auto row_of = [&](std::string_view side, uint64_t row) {
    return side.substr((row * row_elements - window.start_index) * window.element_bytes, row_bytes);
  };
  std::map<std::string_view, uint64_t> source;
  for (uint64_t row = row_begin; row < row_end; ++row)
    source.emplace(row_of(window.expected, row), row);
  std::vector<std::pair<uint64_t, uint64_t>> moves;
  uint64_t explained = 0;
  for (uint64_t row = row_begin; row < row_end; ++row) {
    if (row_of(window.expected, row) == row_of(window.seen, row)) continue;
    const auto from = source.find(row_of(window.seen, row));
    if (from == source.end()) return {};
    moves.emplace_back(row, from->second);
    for (uint64_t i = 0; i < row_elements; ++i) {
      const uint64_t element = row * row_elements - window.start_index + i;
      explained += window.Expected(element) != window.Seen(element) ? 1 : 0;
    }
  }
  // Few bytes coincide by chance; part rows at the ends of the window stay unexplained.
  if (explained != window.differing.size() || moves.size() * row_bytes < 4) return {};
  return DescribeMoves(moves, window.shape.size() == 1 ? "element" : "row");
}

Explanation ShiftedElements(const Window& window) {
  const auto first = static_cast<int64_t>(window.differing.front());
  const auto last = static_cast<int64_t>(window.differing.back());
  const auto count = static_cast<int64_t>(window.ElementCount());
  if (last - first < 3) return {};
  for (int64_t by = 1; by <= 64; ++by) {
    for (const int64_t k : {by, -by}) {
      int64_t held = 0;
      bool all = true;
      for (int64_t i = first; i <= last && all; ++i) {
        if (i + k < 0 || i + k >= count) continue;
        all = window.Seen(i) == window.Expected(i + k);
        ++held;
      }
      if (all && held >= 4 && 2 * held > last - first) {
        return {"shifted",
                fmt::format("shifted by {} elements: element {} holds what belongs at {}", k,
                            window.start_index + first,
                            static_cast<int64_t>(window.start_index) + first + k)};
      }
    }
  }
  return {};
}

Explanation AllNan(const Window& window) {
  if (!IsFloat(window.dtype)) return {};
  for (const uint64_t i : window.differing) {
    const std::optional<double> value = ElementValue(window.dtype, window.Seen(i));
    if (!value || !std::isnan(*value)) return {};
  }
  return {"nan", "NaN"};
}

}  // namespace

Explanation OwnFile() {
  return {"own-file", "the value in this rank's own file: nothing came from rank 0"};
}

Explanation NeverWritten() { return {"poison", "never written (poison)"}; }

Explanation Zeros() { return {"zeros", "zeros: never filled, or cleared"}; }

Explanation Explain(std::string_view expected, std::string_view seen, std::string_view dtype,
                    const std::vector<int64_t>& shape, uint64_t start_index) {
  const std::optional<Window> window = Cut(expected, seen, dtype, shape, start_index);
  if (!window) return {};
  for (const auto& cause : {FillOf, FlippedBit, SwappedBytes, Rounded, Transposed, MovedRows,
                            ShiftedElements, AllNan}) {
    Explanation found = cause(*window);
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace shardproof
