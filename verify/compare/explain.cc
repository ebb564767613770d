#include "verify/compare/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "verify/compare/patterns.h"

namespace shardproof::compare {
namespace {

/// Where the two differ; nullopt if they do not, or cannot be held against each other.
std::optional<Images> Survey(const ExplainInput& input) {
  Images images;
  images.dtype = oracle::FindDtype(input.dtype);
  if (images.dtype == nullptr || input.expected.size() != input.seen.size() ||
      input.expected.size() % images.width() != 0) {
    return std::nullopt;
  }
  const uint64_t limit = kExplainBytesMax / images.width() * images.width();
  images.expected = input.expected.substr(0, limit);
  images.seen = input.seen.substr(0, limit);
  images.shape = input.shape;
  images.first_element = input.first_element;
  images.elements = images.expected.size() / images.width();
  const auto total = oracle::CheckedElements(input.shape.data(), input.shape.size());
  images.whole = input.first_element == 0 && total == images.elements;
  for (uint64_t i = 0; i < images.elements; ++i) {
    if (!images.Differs(i)) continue;
    if (images.differing++ == 0) images.first = i;
    images.last = i;
  }
  if (images.differing == 0) return std::nullopt;
  return images;
}

}  // namespace

// The first that fits is said, so they stand from the most to the least particular.
std::string Explain(const ExplainInput& input) {
  const std::optional<Images> images = Survey(input);
  if (!images) return "";
  Images turned = *images;  // it may be the expected one that went wrong
  std::swap(turned.expected, turned.seen);
  using Pattern = Sentence (*)(const Images&);
  struct Way {
    Pattern pattern;
    bool is_turned = false;
  };
  constexpr Way kWays[] = {{AllZeros},         {NeverWritten}, {FlippedBit},     {ByteSwapped},
                           {Rounded},          {OneMore},      {RowsPermuted},   {ElementsSwapped},
                           {Transposed},       {Shifted},      {SameBitFlipped}, {CutOff},
                           {Inverted},         {Multiplied},   {AllZeros, true}, {Rounded, true},
                           {Transposed, true}, {Stretch}};
  std::string sentence;
  for (const Way& way : kWays) {
    const Sentence found = way.pattern(way.is_turned ? turned : *images);
    if (!found) continue;
    sentence = (way.is_turned ? "the expected values may be the wrong ones: " : "") + *found;
    break;
  }
  if (sentence.empty()) sentence = NoPattern(*images);
  if (!images->whole) {
    sentence += fmt::format(" (judged by elements {} to {})", images->Global(0),
                            images->Global(images->elements - 1));
  }
  return sentence;
}

}  // namespace shardproof::compare
