#include "src/text/printable.h"

#include <fmt/format.h>

namespace shardproof {
namespace {

// Length of the well-formed, printable UTF-8 sequence at the start of `text`, or 0. Well-formed as
// in the Unicode Standard, table 3-7; U+0080..U+009F are controls, U+FFFE and U+FFFF are not XML;
// bidirectional controls are refused because they make a line read as what it is not.
size_t PrintableLength(std::string_view text) {
  const auto at = [&](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const unsigned lead = at(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  unsigned code = lead & (0x7f >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (at(i) & 0x3f);
  }
  const unsigned lowest = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0x80;
  if (code < lowest || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return 0;
  if (code < 0xa0 || (code & 0xfffe) == 0xfffe) return 0;
  if ((code >= 0x200e && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
      (code >= 0x2066 && code <= 0x2069)) {
    return 0;
  }
  return length;
}

bool NeedsQuotes(const std::string& word) {
  return word.empty() || word.find_first_not_of(
                             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                             "_@%+=:,./-") != std::string::npos;
}

}  // namespace

std::string Printable(std::string_view text, bool keep_newlines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    size_t length = PrintableLength(text);
    if (length > 0) {
      out.append(text.substr(0, length));
    } else if (text[0] == '\n') {
      out += keep_newlines ? "\n" : "\\n";
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    }
    text.remove_prefix(length > 0 ? length : 1);
  }
  return out;
}

std::string XmlEscaped(std::string_view text) {
  std::string out;
  for (const char c : Printable(text, true)) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\n') {
      out += "&#10;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string ShellQuoted(const std::string& word) {
  if (!NeedsQuotes(word)) return word;
  std::string out = "'";
  for (const char c : word) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string Grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t i = digits.size(); i > 3;) digits.insert(i -= 3, ",");
  return digits;
}

std::string Plural(uint64_t count, const std::string& noun) {
  return Grouped(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string Wrapped(const std::string& text, int width, int indent) {
  if (width <= 0) return text;
  std::string out;
  size_t column = 0;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = text.find(' ', begin + 1);
    if (end == std::string::npos) end = text.size();
    const size_t length = end - begin;
    if (column > static_cast<size_t>(indent) && column + length > static_cast<size_t>(width)) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
      if (text[begin] == ' ') ++begin;
    }
    out.append(text, begin, end - begin);
    column += end - begin;
    begin = end;
  }
  return out;
}

}  // namespace shardproof
