// Text that others chose (tensor names, error messages) made safe for where it is going.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shardproof {

/// Valid UTF-8 without control characters: bytes that are not, become \xNN. So a name cannot move a
/// terminal's cursor or break a document. A newline becomes \n unless `keep_newlines`.
std::string Printable(std::string_view text, bool keep_newlines = false);

/// Printable, and escaped for XML text and attribute values.
std::string XmlEscaped(std::string_view text);

/// One word for a POSIX shell; quoted only if it must be.
std::string ShellQuoted(const std::string& word);

/// "1,234,567"
std::string Grouped(uint64_t number);

/// "1 rank", "3 ranks"
std::string Plural(uint64_t count, const std::string& noun);

/// Lines of at most `width` characters (0: no limit), broken at spaces, later lines indented.
std::string Wrapped(const std::string& text, int width, int indent);

}  // namespace shardproof
