#include "verify/oracle/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "verify/oracle/input_file.h"
#include "verify/oracle/quote.h"

namespace shardproof::oracle {

using simdjson::dom::element_type;

Result<simdjson::dom::object> ParseObject(simdjson::dom::parser& parser, const std::string& where,
                                          const std::string& text) {
  JsonElement root;
  if (const auto error = parser.parse(text.data(), text.size()).get(root)) {
    return BadInput(fmt::format("{}: expected JSON, found text that is not: {}", Printable(where),
                                simdjson::error_message(error)));
  }
  simdjson::dom::object object;
  if (root.get_object().get(object)) {
    return BadInput(
        fmt::format("{}: expected a JSON object, found {}", Printable(where), Describe(root)));
  }
  return object;
}

std::optional<JsonElement> FindJson(simdjson::dom::parser& parser, const std::string& path,
                                    uint64_t bytes_max) {
  const auto text = ReadWholeFile(path, bytes_max);
  JsonElement root;
  if (!text.ok() || parser.parse(text.value()).get(root)) return std::nullopt;
  return root;
}

Result<std::vector<JsonMember>> Members(const std::string& where,
                                        const simdjson::dom::object& object) {
  std::vector<JsonMember> members;
  for (const auto field : object) members.push_back({field.key, field.value});
  std::vector<std::string_view> keys;
  keys.reserve(members.size());
  for (const JsonMember& member : members) keys.push_back(member.key);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end()) {
    return BadInput(fmt::format("{}: expected every key once, found {} twice", Printable(where),
                                Quote(*twice)));
  }
  return members;
}

std::string Describe(const JsonElement& value) {
  switch (value.type()) {
    case element_type::ARRAY:
      return "an array";
    case element_type::OBJECT:
      return "an object";
    case element_type::INT64:
      return fmt::format("{}", int64_t(value));
    case element_type::UINT64:
      return fmt::format("{}", uint64_t(value));
    case element_type::DOUBLE:
      return fmt::format("{:#}", double(value));  // 4096.0 is not 4096
    case element_type::STRING:
      return "string " + Quote(std::string_view(value));
    case element_type::BOOL:
      return bool(value) ? "true" : "false";
    case element_type::NULL_VALUE:
      return "null";
  }
  return "something else";
}

Result<std::string_view> AsString(const std::string& where, const std::string& field,
                                  const JsonElement& value) {
  std::string_view text;
  if (value.get_string().get(text)) {
    return BadInput(fmt::format("{}: {}: expected a string, found {}", Printable(where), field,
                                Describe(value)));
  }
  return text;
}

Result<int64_t> AsInteger(const std::string& where, const std::string& field,
                          const JsonElement& value, int64_t low, int64_t high) {
  int64_t number = 0;
  const bool is_integer = value.is_int64() && !value.get_int64().get(number);
  if (!is_integer || number < low || number > high) {
    const std::string bound = high == std::numeric_limits<int64_t>::max()
                                  ? fmt::format("of at least {}", low)
                                  : fmt::format("from {} to {}", low, high);
    return BadInput(fmt::format("{}: {}: expected an integer {}, found {}", Printable(where), field,
                                bound, Describe(value)));
  }
  return number;
}

Result<std::vector<int64_t>> AsSizes(const std::string& where, const std::string& field,
                                     const JsonElement& value) {
  simdjson::dom::array array;
  if (value.get_array().get(array)) {
    return BadInput(fmt::format("{}: {}: expected an array of integers, found {}", Printable(where),
                                field, Describe(value)));
  }
  std::vector<int64_t> numbers;
  for (const JsonElement item : array) {
    SP_ASSIGN(const int64_t number,
              AsInteger(where, field, item, 0, std::numeric_limits<int64_t>::max()));
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace shardproof::oracle
