// JSON from outside, parsed with suspicion.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "src/core/result.h"

namespace shardproof {

/// Parses a JSON object. Duplicate keys, which the JSON library would silently resolve, and nesting
/// so deep that it would exhaust the stack are refused.
/// \param origin what the text is, for errors. \error kBadInput.
Result<nlohmann::json> ParseStrictObject(std::string_view text, const std::string& origin);

/// A name or value from outside as error messages show it: in one line, in ASCII, not too long.
std::string Shown(const nlohmann::json& value);
/// The same of a text, between single quotes.
std::string ShownText(const std::string& text);

}  // namespace shardproof
