#include "verify/oracle/config_fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace shardproof::oracle {

Result<Fields> Fields::Of(const std::string& where, const simdjson::dom::object& object) {
  SP_ASSIGN(std::vector<JsonMember> members, Members(where, object));
  return Fields(where, std::move(members));
}

std::optional<JsonElement> Fields::Find(std::string_view name) const {
  for (const JsonMember& member : members_) {
    if (member.key == name && !member.value.is_null()) return member.value;
  }
  return std::nullopt;
}

bool Fields::IsNull(std::string_view name) const {
  return std::any_of(members_.begin(), members_.end(), [&](const JsonMember& member) {
    return member.key == name && member.value.is_null();
  });
}

Result<int64_t> Fields::Integer(const std::string& name, int64_t low, int64_t high) const {
  const auto value = Find(name);
  if (!value) return Missing(name, fmt::format("an integer from {} to {}", low, high));
  return AsInteger(where_, name, *value, low, high);
}

Result<int64_t> Fields::IntegerOr(int64_t if_absent, const std::string& name, int64_t low,
                                  int64_t high) const {
  return Has(name) ? Integer(name, low, high) : Result<int64_t>(if_absent);
}

Result<bool> Fields::Bool(const std::string& name, bool if_absent) const {
  const auto value = Find(name);
  if (!value) return if_absent;
  if (!value->is_bool()) return Wrong(name, "true or false", *value);
  return bool(*value);
}

Result<std::string> Fields::Text(const std::string& name, const std::string& if_absent) const {
  const auto value = Find(name);
  if (!value) return if_absent;
  SP_ASSIGN(const std::string_view text, AsString(where_, name, *value));
  return std::string(text);
}

Result<double> Fields::AsPositive(const std::string& name, const JsonElement& value) const {
  double number = 0;
  if (value.get_double().get(number) || !(number > 0) || number > 1e38) {
    return Wrong(name, "a number above 0 and up to 1e38", value);
  }
  return number;
}

Result<double> Fields::Positive(const std::string& name) const {
  const auto value = Find(name);
  if (!value) return Missing(name, "a number above 0 and up to 1e38");
  return AsPositive(name, *value);
}

Result<double> Fields::Positive(const std::string& name, double if_absent) const {
  return Has(name) ? Positive(name) : Result<double>(if_absent);
}

Result<double> Fields::Fraction(const std::string& name, double if_absent) const {
  const auto value = Find(name);
  if (!value) return if_absent;
  double number = 0;
  if (value->get_double().get(number) || !(number >= 0) || number > 1) {
    return Wrong(name, "a number from 0 to 1", *value);
  }
  return number;
}

Result<std::vector<JsonElement>> Fields::Elements(const std::string& name, const std::string& of,
                                                  size_t count_max) const {
  std::vector<JsonElement> elements;
  const auto value = Find(name);
  if (!value) return elements;
  simdjson::dom::array array;
  if (value->get_array().get(array)) return Wrong(name, "an array of " + of, *value);
  for (const JsonElement element : array) {
    if (elements.size() == count_max) {
      return BadInput(
          fmt::format("{}: {}: expected at most {} {}, found more", where_, name, count_max, of));
    }
    elements.push_back(element);
  }
  return elements;
}

Result<std::vector<int64_t>> Fields::Integers(const std::string& name, int64_t low, int64_t high,
                                              size_t count_max) const {
  SP_ASSIGN(const std::vector<JsonElement> elements, Elements(name, "integers", count_max));
  std::vector<int64_t> numbers;
  for (const JsonElement& element : elements) {
    const std::string field = fmt::format("{}[{}]", name, numbers.size());
    SP_ASSIGN(const int64_t number, AsInteger(where_, field, element, low, high));
    numbers.push_back(number);
  }
  return numbers;
}

Result<std::vector<double>> Fields::Positives(const std::string& name, size_t count_max) const {
  SP_ASSIGN(const std::vector<JsonElement> elements, Elements(name, "numbers", count_max));
  std::vector<double> numbers;
  for (const JsonElement& element : elements) {
    SP_ASSIGN(const double number,
              AsPositive(fmt::format("{}[{}]", name, numbers.size()), element));
    numbers.push_back(number);
  }
  return numbers;
}

Result<std::vector<std::string>> Fields::Texts(const std::string& name, size_t count_max) const {
  SP_ASSIGN(const std::vector<JsonElement> elements, Elements(name, "strings", count_max));
  std::vector<std::string> texts;
  for (const JsonElement& element : elements) {
    const std::string field = fmt::format("{}[{}]", name, texts.size());
    SP_ASSIGN(const std::string_view text, AsString(where_, field, element));
    texts.emplace_back(text);
  }
  return texts;
}

Result<Fields> Fields::Object(const std::string& name) const {
  const auto value = Find(name);
  if (!value) return Fields(where_ + ": " + name, {});
  simdjson::dom::object object;
  if (value->get_object().get(object)) return Wrong(name, "an object or null", *value);
  return Of(where_ + ": " + name, object);
}

Fields Fields::Without(const std::vector<std::string_view>& names) const {
  Fields left = *this;
  std::erase_if(left.members_, [&](const JsonMember& member) {
    return std::find(names.begin(), names.end(), member.key) != names.end();
  });
  return left;
}

Error Fields::Wrong(const std::string& name, const std::string& expected,
                    const JsonElement& found) const {
  return BadInput(
      fmt::format("{}: {}: expected {}, found {}", where_, name, expected, Describe(found)));
}

Error Fields::Missing(const std::string& name, const std::string& expected) const {
  return BadInput(fmt::format("{}: {}: expected {}, found nothing", where_, name, expected));
}

Error Fields::Wrong(const std::string& name, const std::string& expected, int64_t found) const {
  return BadInput(fmt::format("{}: {}: expected {}, found {}", where_, name, expected, found));
}

}  // namespace shardproof::oracle
