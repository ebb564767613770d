// Patterns in where the elements are: transposed, permuted, shifted, a stretch from elsewhere.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "verify/compare/patterns.h"

namespace shardproof::compare {
namespace {

constexpr uint64_t kNeedleElements = 16;
constexpr int kCandidatesMax = 64;

/// Whether all elements of `bytes` are one and the same: such a stretch is found anywhere.
bool IsConstant(std::string_view bytes, uint64_t width) {
  return bytes.size() <= width || bytes.substr(width) == bytes.substr(0, bytes.size() - width);
}

/// Element indices of `text` at or after `from` where `needle` stands; only a few are tried.
template <typename Accept>
std::optional<uint64_t> FindElements(std::string_view text, std::string_view needle, uint64_t from,
                                     uint64_t width, Accept accept) {
  uint64_t position = from * width;
  for (int tries = 0; tries < kCandidatesMax && position < text.size(); ++tries) {
    const void* hit =
        memmem(text.data() + position, text.size() - position, needle.data(), needle.size());
    if (hit == nullptr) return std::nullopt;
    position = static_cast<uint64_t>(static_cast<const char*>(hit) - text.data());
    if (position % width == 0 && accept(position / width)) return position / width;
    ++position;
  }
  return std::nullopt;
}

/// Rows of the leading dim that lie wholly in the images.
struct Rows {
  uint64_t elements = 0;  ///< in one row
  uint64_t begin = 0;     ///< image index of the first whole row
  uint64_t count = 0;
  uint64_t first_row = 0;  ///< its number in the tensor
};

std::optional<Rows> RowsOf(const Images& images) {
  if (images.shape.size() < 2) return std::nullopt;
  const auto step = oracle::CheckedElements(images.shape.data() + 1, images.shape.size() - 1);
  if (!step || *step == 0) return std::nullopt;
  Rows rows;
  rows.elements = *step;
  rows.begin = (*step - images.first_element % *step) % *step;
  if (rows.begin >= images.elements) return std::nullopt;
  rows.count = (images.elements - rows.begin) / *step;
  rows.first_row = (images.first_element + rows.begin) / *step;
  const uint64_t end = rows.begin + rows.count * *step;
  const bool all_inside = images.first >= rows.begin && images.last < end;
  return rows.count >= 2 && all_inside ? std::optional(rows) : std::nullopt;
}

/// Whether `count` elements seen from one index on are those expected from another on.
bool MatchesShifted(const Images& images, uint64_t seen_begin, uint64_t expected_begin,
                    uint64_t count) {
  return images.Seen(seen_begin, count) == images.Expected(expected_begin, count);
}

}  // namespace

Sentence Transposed(const Images& images) {
  const size_t rank = images.shape.size();
  if (!images.whole || rank < 2) return std::nullopt;
  const uint64_t rows = static_cast<uint64_t>(images.shape[rank - 2]);
  const uint64_t columns = static_cast<uint64_t>(images.shape[rank - 1]);
  if (rows < 2 || columns < 2) return std::nullopt;
  for (uint64_t i = 0; i < images.elements; ++i) {
    const uint64_t matrix = i / (rows * columns) * rows * columns;
    const uint64_t row = i % (rows * columns) / columns;
    const uint64_t column = i % columns;
    if (images.Seen(matrix + column * rows + row) != images.Expected(i)) return std::nullopt;
  }
  return fmt::format(
      "transposed: the values are those of the expected [{}, {}] read column by "
      "column",
      rows, columns);
}

Sentence RowsPermuted(const Images& images) {
  const std::optional<Rows> rows = RowsOf(images);
  if (!rows) return std::nullopt;
  const auto expected_row = [&](uint64_t r) {
    return images.Expected(rows->begin + r * rows->elements, rows->elements);
  };
  const auto seen_row = [&](uint64_t r) {
    return images.Seen(rows->begin + r * rows->elements, rows->elements);
  };
  std::unordered_map<std::string_view, uint64_t> place;
  for (uint64_t r = 0; r < rows->count; ++r) place.emplace(expected_row(r), r);
  std::vector<std::pair<uint64_t, uint64_t>> moved;  // row, and the row whose values it holds
  for (uint64_t r = 0; r < rows->count; ++r) {
    if (seen_row(r) == expected_row(r)) continue;
    const auto origin = place.find(seen_row(r));
    if (origin == place.end()) return std::nullopt;
    moved.emplace_back(r + rows->first_row, origin->second + rows->first_row);
  }
  if (moved.size() == 2 && moved[0].first == moved[1].second && moved[1].first == moved[0].second) {
    return fmt::format("rows {} and {} are swapped", moved[0].first, moved[1].first);
  }
  if (moved.size() == 1) {
    return fmt::format("row {} holds the values of row {}", moved[0].first, moved[0].second);
  }
  return fmt::format(
      "rows permuted: {} rows hold the values of other rows, the first is row {}, "
      "which holds row {}",
      moved.size(), moved[0].first, moved[0].second);
}

Sentence ElementsSwapped(const Images& images) {
  if (images.differing != 2) return std::nullopt;
  const bool swapped = images.Seen(images.first) == images.Expected(images.last) &&
                       images.Seen(images.last) == images.Expected(images.first);
  if (!swapped) return std::nullopt;
  return fmt::format("elements {} and {} are swapped", images.Global(images.first),
                     images.Global(images.last));
}

Sentence Shifted(const Images& images) {
  const uint64_t from = images.first;
  const uint64_t rest = images.elements - from;
  const uint64_t needle = std::min(kNeedleElements, rest / 2);
  if (needle < 2) return std::nullopt;
  // A shift must explain at least half of what follows, so that a chance repeat is none.
  const auto overlap = [&](uint64_t shift) { return rest - shift; };
  const auto enough = [&](uint64_t shift) { return overlap(shift) * 2 >= rest; };
  if (!IsConstant(images.Expected(from, needle), images.width())) {
    const auto later = FindElements(
        images.seen, images.Expected(from, needle), from + 1, images.width(), [&](uint64_t at) {
          return enough(at - from) && MatchesShifted(images, at, from, overlap(at - from));
        });
    if (later) {
      return fmt::format("shifted by {} elements to the back, from element {} on", *later - from,
                         images.Global(from));
    }
  }
  if (IsConstant(images.Seen(from, needle), images.width())) return std::nullopt;
  const auto earlier = FindElements(
      images.expected, images.Seen(from, needle), from + 1, images.width(), [&](uint64_t at) {
        return enough(at - from) && MatchesShifted(images, from, at, overlap(at - from));
      });
  if (!earlier) return std::nullopt;
  return fmt::format("shifted by {} elements to the front, from element {} on", *earlier - from,
                     images.Global(from));
}

Sentence Stretch(const Images& images) {
  const uint64_t length = images.last - images.first + 1;
  // A few elements inside may agree by chance, and a stretch that is nearly all says nothing.
  const bool dense = images.differing * 10 >= length * 9;
  if (!dense || length < 4 || length * 4 > images.elements * 3) return std::nullopt;
  const std::string where =
      fmt::format("elements {} to {}", images.Global(images.first), images.Global(images.last));
  const std::string_view stretch = images.Seen(images.first, length);
  if (!IsConstant(stretch, images.width())) {
    const std::string_view needle = stretch.substr(0, kNeedleElements * images.width());
    const auto origin = FindElements(images.expected, needle, 0, images.width(), [&](uint64_t at) {
      return at + length <= images.elements && images.Expected(at, length) == stretch;
    });
    if (origin) {
      return fmt::format("{} hold the values of elements {} to {}", where, images.Global(*origin),
                         images.Global(*origin + length - 1));
    }
  }
  return fmt::format(
      "one contiguous stretch, {}, differs and all else is equal: it is stale or was overwritten",
      where);
}

}  // namespace shardproof::compare
