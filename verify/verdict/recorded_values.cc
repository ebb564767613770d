#include "verify/verdict/recorded_values.h"

#include <cstring>
#include <string_view>

#include "verify/verdict/image.h"
#include "verify/verdict/values.h"

namespace shardproof {

double RecordedValues::number(uint64_t index) const {
  const std::string_view raw(bytes.data() + index * element, element);
  return ElementValue(dtype, raw).value_or(0);
}

RecordedLookup ValuesAt(const PhaseEvidence& phase, const std::string& stage,
                        const std::string& name) {
  const std::vector<Image> images = ImagesOf(phase, stage, name);
  if (images.empty()) return {.why_not = "no rank has it"};
  const Image& image = images[0];
  if (!image.defined || image.partial) return {.why_not = "it is not defined"};
  RecordedLookup found{.is_there = true};
  found.values.dtype = image.dtype;
  found.values.element = ElementBytes(image.dtype).value_or(1);
  const uint64_t bytes = ImageBytes(image.dtype, image.shape).value_or(0);
  const KnownBytes known(image);
  const auto read = bytes == 0 ? std::string_view() : known.Read(0, bytes).value_or("");
  if (read.size() != bytes)
    return {.why_not = "some of its bytes were not recorded", .is_there = true};
  found.values.bytes = std::string(read);
  for (const Image& each : images) {
    for (const int64_t rank : each.Ranks()) found.values.ranks.push_back(rank);
  }
  return found;
}

float RoundedTo(const std::string& dtype, float value) {
  if (dtype == "F16") return RoundThroughF16(value);
  if (dtype != "BF16") return value;
  const uint32_t bits = static_cast<uint32_t>(RoundToBf16(value)) << 16;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace shardproof
