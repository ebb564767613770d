#include "verify/quantised/quant_state.h"

#include <algorithm>
#include <string>

#include "verify/oracle/dtype.h"
#include "verify/oracle/json.h"
#include "verify/quantised/unit_parts.h"

namespace shardproof {
namespace {

constexpr uint64_t kStateBytesMax = 64u << 10;
constexpr uint64_t kElementsMax = uint64_t{1} << 60;

}  // namespace

std::optional<QuantState> ReadQuantState(maps::TensorReader& state) {
  const uint64_t bytes = state.elements() * state.width();
  if (bytes > kStateBytesMax) return {};
  std::string text(bytes, '\0');
  if (!state.Read(0, state.elements(), text.data()).ok()) return {};
  simdjson::dom::parser parser;
  simdjson::dom::element element;
  simdjson::dom::array shape;
  QuantState out{.elements = 1};
  if (parser.parse(text).get(element) || element["blocksize"].get(out.size) ||
      element["shape"].get(shape) || out.size == 0) {
    return {};
  }
  for (const simdjson::dom::element& each : shape) {
    uint64_t size = 0;
    if (each.get(size) || size > kElementsMax ||
        __builtin_mul_overflow(out.elements, size, &out.elements)) {
      return {};
    }
    out.shape.push_back(static_cast<int64_t>(size));
  }
  if (out.elements > kElementsMax || out.size > kElementsMax) return {};
  if (element["nested_blocksize"].get(out.nested_size)) out.nested_size = 0;
  if (out.nested_size > kElementsMax) return {};
  if (element["nested_offset"].get(out.nested_offset)) out.nested_offset = 0;
  return out;
}

std::optional<std::vector<int64_t>> ReadPackedShape(maps::TensorReader& stated,
                                                    const std::vector<int64_t>& codes,
                                                    int64_t bits) {
  const std::string dtype = stated.dtype().name;
  const bool is_whole = dtype == "I64" || dtype == "I32";
  if (!is_whole || stated.elements() != codes.size() || bits < 1 || bits > 8) return {};
  std::string bytes(stated.elements() * stated.width(), '\0');
  if (codes.empty() || !stated.Read(0, stated.elements(), bytes.data()).ok()) return {};
  std::vector<int64_t> shape;
  for (uint64_t i = 0; i < stated.elements(); ++i) {
    shape.push_back(static_cast<int64_t>(
        oracle::LoadBits(&bytes[i * stated.width()], static_cast<int>(stated.width()))));
  }
  // Codes may lie one behind the other, or none in two words.
  const bool fits = std::equal(shape.begin(), shape.end() - 1, codes.begin()) && shape.back() > 0 &&
                    shape.back() < kSizeMax &&
                    (codes.back() == (shape.back() * bits + 31) / 32 ||
                     codes.back() == (shape.back() - 1) / (32 / bits) + 1);
  if (!fits) return {};
  return shape;
}

}  // namespace shardproof
