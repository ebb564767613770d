// Floats and texts as Python shows them, for people and for comparing.
#pragma once

#include <string>
#include <string_view>

namespace shardproof::text {

/// The shortest form that reads back to the same bits, "1.0"; NaN with its bits.
std::string PythonFloat(double number);

/// In single quotes, control bytes as \xNN. \param is_bytes  as b'...', bytes beyond ASCII
/// likewise.
std::string PythonText(std::string_view text, bool is_bytes = false);

}  // namespace shardproof::text
