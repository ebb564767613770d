// Names from files, made fit for a one-line message: nothing in them can break the line, drive a
// terminal or fill a screen.
#pragma once

#include <string>
#include <string_view>

namespace shardproof::text {

/// `text` in single quotes, made printable (src/text/printable.h); cut after 160 bytes, with a mark.
std::string Quote(std::string_view text);

/// The same without the quotes, for names in running text.
std::string Printable(std::string_view text);

}  // namespace shardproof::text
