#include "verify/quantised/quant_state.h"

#include <string>

#include "verify/oracle/json.h"

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

}  // namespace shardproof
