#include "src/text/quote.h"

#include <fmt/format.h>

namespace shardproof::text {
namespace {

constexpr size_t kShownBytesMax = 160;

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kShownBytesMax)) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  if (text.size() > kShownBytesMax) out += "...";
  return out;
}

std::string Quote(std::string_view text) { return "'" + Printable(text) + "'"; }

}  // namespace shardproof::text
