// A matrix in memory turned: rows to columns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace shardproof::maps {

/// Of a column that is written at once, so that its bytes lie together: two lines of the cache.
inline constexpr uint64_t kStretchBytes = 128;

inline constexpr size_t kVectorBytes = 16;  // which every machine that we build for has

template <typename Element>
struct VectorOf {
  typedef Element Type __attribute__((vector_size(kVectorBytes)));
};

/// The first halves of two vectors, element by element in turn, or their second ones.
template <typename Vector, size_t... kLane>
void Zip(const Vector& a, const Vector& b, Vector& first, Vector& second,
         std::index_sequence<kLane...>) {
  constexpr size_t kLanes = sizeof...(kLane);
  first = __builtin_shufflevector(a, b, (kLane / 2 + kLane % 2 * kLanes)...);
  second = __builtin_shufflevector(a, b, (kLanes / 2 + kLane / 2 + kLane % 2 * kLanes)...);
}

/// A square of as many rows and columns as a vector has elements. Steps are in elements.
template <typename Element>
void TurnSquare(const Element* from, size_t from_step, Element* to, size_t to_step) {
  constexpr size_t kSide = kVectorBytes / sizeof(Element);
  using Vector = typename VectorOf<Element>::Type;
  Vector rows[kSide], zipped[kSide];
#pragma GCC unroll 16
  for (size_t i = 0; i < kSide; ++i) std::memcpy(&rows[i], from + i * from_step, kVectorBytes);
#pragma GCC unroll 4
  for (size_t done = 1; done < kSide; done *= 2) {
#pragma GCC unroll 8
    for (size_t i = 0; i < kSide / 2; ++i) {
      Zip(rows[i], rows[i + kSide / 2], zipped[2 * i], zipped[2 * i + 1],
          std::make_index_sequence<kSide>());
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < kSide; ++i) rows[i] = zipped[i];
  }
#pragma GCC unroll 16
  for (size_t i = 0; i < kSide; ++i) std::memcpy(to + i * to_step, &rows[i], kVectorBytes);
}

/// Puts `count` rows of `columns` elements as `columns` stretches of `count` at `out`, so many
/// elements from one to the next. \pre count is at most kStretchBytes / sizeof(Element).
template <typename Element>
void Turn(const char* bytes, uint64_t count, uint64_t columns, char* out_bytes, uint64_t out_step) {
  constexpr uint64_t kRows = kStretchBytes / sizeof(Element);
  constexpr uint64_t kColumns = std::max<uint64_t>(64 / sizeof(Element), 1);
  const auto* rows = reinterpret_cast<const Element*>(bytes);
  auto* out = reinterpret_cast<Element*>(out_bytes);
  // By way of a tile, since rows whose distance is a power of 2 are in each other's way in the
  // cache.
  Element tile[kColumns][kRows];
  for (uint64_t i = 0; i < columns; i += kColumns) {
    const uint64_t taken = std::min(kColumns, columns - i);
    uint64_t whole_rows = 0, whole_columns = 0;
    if constexpr (sizeof(Element) < kVectorBytes) {
      constexpr uint64_t kSide = kVectorBytes / sizeof(Element);
      whole_rows = count / kSide * kSide;
      whole_columns = taken / kSide * kSide;
      for (uint64_t row = 0; row < whole_rows; row += kSide) {
        for (uint64_t j = 0; j < whole_columns; j += kSide)
          TurnSquare(rows + row * columns + i + j, columns, &tile[j][row], kRows);
      }
    }
    for (uint64_t row = 0; row < count; ++row) {
      for (uint64_t j = row < whole_rows ? whole_columns : 0; j < taken; ++j)
        tile[j][row] = rows[row * columns + i + j];
    }
    for (uint64_t j = 0; j < taken; ++j)
      std::memcpy(out + (i + j) * out_step, tile[j], count * sizeof(Element));
  }
}

}  // namespace shardproof::maps
