// JSON as the oracle reads it: by simdjson, with duplicate keys refused and every error one line.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/result.h"

namespace shardproof::oracle {

using JsonElement = simdjson::dom::element;

/// Parses `text` as one JSON object into `parser`, which owns the values.
/// \param where  what the text is, for messages: a file name.
/// \error kBadInput if it is no JSON object.
Result<simdjson::dom::object> ParseObject(simdjson::dom::parser& parser, const std::string& where,
                                          const std::string& text);

/// The JSON in a file, parsed into `parser`; no value if there is no such file, it is larger than
/// `bytes_max`, or it is not JSON. For what may help and is no error where it does not.
std::optional<JsonElement> FindJson(simdjson::dom::parser& parser, const std::string& path,
                                    uint64_t bytes_max);

/// The members in the order of the file. \error kBadInput naming a key that stands twice.
struct JsonMember {
  std::string_view key;
  JsonElement value;
};
Result<std::vector<JsonMember>> Members(const std::string& where,
                                        const simdjson::dom::object& object);

/// What a value is, with its text where that is short: "string 'abc'", "number -1", "array".
std::string Describe(const JsonElement& value);

/// \error kBadInput "where: field: expected a string, found ...".
Result<std::string_view> AsString(const std::string& where, const std::string& field,
                                  const JsonElement& value);

/// An integer in [low, high]. \error kBadInput likewise; 1.0 is no integer.
Result<int64_t> AsInteger(const std::string& where, const std::string& field,
                          const JsonElement& value, int64_t low, int64_t high);

/// An array of integers of at least 0. \error kBadInput likewise.
Result<std::vector<int64_t>> AsSizes(const std::string& where, const std::string& field,
                                     const JsonElement& value);

}  // namespace shardproof::oracle
