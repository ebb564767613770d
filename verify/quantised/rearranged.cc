#include "verify/quantised/rearranged.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "verify/quantised/blocks.h"

namespace shardproof::quantised {
namespace {

/// Changes one element, of `width` bytes, where it lies.
using Change = void (*)(char* element, uint64_t width);

class ChangedReader : public maps::TensorReader {
 public:
  ChangedReader(Reader base, Change change)
      : TensorReader(base->dtype(), base->shape()), base_(std::move(base)), change_(change) {}

  Status Read(uint64_t start, uint64_t count, char* out) override {
    SP_TRY(base_->Read(start, count, out));
    for (uint64_t i = 0; i < count; ++i) change_(out + i * width(), width());
    return Ok();
  }

 private:
  Reader base_;
  Change change_;
};

void ReverseBytes(char* element, uint64_t width) { std::reverse(element, element + width); }

void SwapHalves(char* element, uint64_t width) {
  for (char* byte = element; byte < element + width; ++byte) {
    const auto bits = static_cast<uint8_t>(*byte);
    *byte = static_cast<char>(bits << 4 | bits >> 4);
  }
}

template <unsigned kBits>
void Flip(char* element, uint64_t width) {
  for (char* byte = element; byte < element + width; ++byte)
    *byte = static_cast<char>(static_cast<uint8_t>(*byte) ^ kBits);
}

uint32_t HalfOf(const char* word, int index) {
  return static_cast<uint8_t>(word[index / 2]) >> index % 2 * 4 & 15;
}

/// The eight codes of a word: where AWQ puts each, and back.
template <bool kBack>
void Interleave(char* word, uint64_t) {
  constexpr int kPlaces[] = {0, 4, 1, 5, 2, 6, 3, 7};
  uint32_t out = 0;
  for (int i = 0; i < 8; ++i) {
    out |= kBack ? HalfOf(word, kPlaces[i]) << 4 * i : HalfOf(word, i) << 4 * kPlaces[i];
  }
  for (int i = 0; i < 4; ++i) word[i] = static_cast<char>(out >> 8 * i);
}

Rearrangement Changed(const char* words, Change change) {
  return {words, [change](Reader part) -> Reader {
            return std::make_unique<ChangedReader>(std::move(part), change);
          }};
}

/// Along `dim`, the index that `of` gives for each.
Rearrangement Along(const Shape& shape, size_t dim, std::string words,
                    std::function<uint64_t(uint64_t)> of) {
  uint64_t inner = 1;
  for (size_t i = dim + 1; i < shape.size(); ++i) inner *= static_cast<uint64_t>(shape[i]);
  const auto size = static_cast<uint64_t>(shape[dim]);
  return {std::move(words), [=, of = std::move(of)](Reader part) {
            return Picked(std::move(part), shape, [=](uint64_t at) {
              const uint64_t index = at / inner % size;
              return at + of(index) * inner - index * inner;
            });
          }};
}

/// In two or three equal parts, such as gate and up, or q, k and v: all other orders of them.
void AddPartsInOtherOrders(const Shape& shape, size_t dim, std::vector<Rearrangement>& out) {
  for (const uint64_t count : {uint64_t{2}, uint64_t{3}}) {
    const auto size = static_cast<uint64_t>(shape[dim]);
    if (size == 0 || size % count != 0) continue;
    const uint64_t each = size / count;
    const std::string words =
        fmt::format("with their {} along dim {} {}", count == 2 ? "halves" : "thirds", dim,
                    count == 2 ? "swapped" : "in another order");
    std::vector<uint64_t> order(count);
    std::iota(order.begin(), order.end(), uint64_t{0});
    while (std::next_permutation(order.begin(), order.end())) {
      out.push_back(Along(shape, dim, words, [=](uint64_t index) {
        return order[index / each] * each + index % each;
      }));
    }
  }
}

void AddNeighbours(const Shape& shape, size_t dim, std::vector<Rearrangement>& out) {
  const auto size = static_cast<uint64_t>(shape[dim]);
  if (size < 2) return;
  for (const uint64_t step : {uint64_t{1}, size - 1}) {
    out.push_back(Along(shape, dim, fmt::format("of their neighbours along dim {}", dim),
                        [=](uint64_t index) { return (index + step) % size; }));
  }
}

/// Each matrix written column by column into the place of one that lies row by row, and back.
void AddTransposed(const Shape& shape, std::vector<Rearrangement>& out) {
  const size_t rank = shape.size();
  if (rank < 2 || shape[rank - 1] < 2 || shape[rank - 2] < 2) return;
  const auto columns = static_cast<uint64_t>(shape[rank - 1]);
  const auto rows = static_cast<uint64_t>(shape[rank - 2]);
  const auto add = [&](uint64_t height, uint64_t width) {
    out.push_back({"transposed", [=](Reader part) {
                     return Picked(std::move(part), shape, [=](uint64_t at) {
                       const uint64_t within = at % (height * width);
                       return at - within + within % width * height + within / width;
                     });
                   }});
  };
  add(rows, columns);
  if (rows != columns) add(columns, rows);
}

}  // namespace

std::vector<Rearrangement> RearrangementsOf(const Shape& shape, uint64_t width) {
  std::vector<Rearrangement> out = {
      Changed("with the two halves (nibbles) of each byte swapped", SwapHalves),
      Changed("with the highest bit of each byte flipped: signed and unsigned ones differ so",
              Flip<0x80>),
      Changed("with the highest bit of each half byte flipped: signed and unsigned ones differ so",
              Flip<0x88>)};
  if (width > 1) out.push_back(Changed("with the bytes of each element reversed", ReverseBytes));
  if (width == 4) {
    const char* const words = "with the eight of each word in another order: AWQ's, or ascending";
    out.push_back(Changed(words, Interleave<false>));
    out.push_back(Changed(words, Interleave<true>));
  }
  AddTransposed(shape, out);
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    AddNeighbours(shape, dim, out);
    AddPartsInOtherOrders(shape, dim, out);
  }
  return out;
}

}  // namespace shardproof::quantised
