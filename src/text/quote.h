// Names from files, made fit for a one-line message: nothing in them can break the line, drive a
// terminal or fill a screen.
#pragma once

#include <string>
#include <string_view>

namespace shardproof::text {

/// `text` in single quotes, printable as src/text/printable.h says; cut after 160 bytes and marked.
std::string Quote(std::string_view text);

/// The same without the quotes, for names in running text.
std::string Printable(std::string_view text);

}  // namespace shardproof::text
