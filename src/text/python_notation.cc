#include "src/text/python_notation.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>

namespace shardproof::text {

std::string PythonFloat(double number) {
  if (std::isnan(number)) {
    return fmt::format("nan (0x{:016x})", std::bit_cast<uint64_t>(number));
  }
  std::string text = fmt::format("{}", number);
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

std::string PythonText(std::string_view text, bool is_bytes) {
  std::string out = is_bytes ? "b'" : "'";
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == '\'' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f || (is_bytes && byte >= 0x80)) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + "'";
}

}  // namespace shardproof::text
