#include "verify/case/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace shardproof {
namespace {

// A message ends up on terminals; what it quotes may be any bytes at all.
std::string Readable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 600)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

/// Where and why it is not, which simdjson does not say; `otherwise` if this library would take it.
std::string WhyNotJson(const std::string& text, const char* otherwise) {
  const auto keep_nothing = [](int, nlohmann::json::parse_event_t, nlohmann::json&) {
    return false;
  };
  try {
    [[maybe_unused]] const auto nothing = nlohmann::json::parse(text, keep_nothing);
  } catch (const nlohmann::json::exception& error) {
    return Readable(error.what());
  }
  return otherwise;
}

}  // namespace

Result<JsonValue> ParseJson(simdjson::dom::parser& parser, const std::string& text) {
  JsonValue root;
  if (const auto error = parser.parse(text).get(root)) {
    return BadInput("not JSON: " + WhyNotJson(text, simdjson::error_message(error)));
  }
  return root;
}

std::string DumpJson(const nlohmann::json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

namespace {

std::string Cut(std::string text) {
  constexpr size_t kShown = 80;
  return text.size() > kShown ? text.substr(0, kShown) + "..." : text;
}

std::string Quoted(std::string_view text) {
  return Cut(nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
}

}  // namespace

std::string DescribeJson(const JsonValue& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", simdjson::dom::array(value).size());
  if (value.is_string()) return Quoted(std::string_view(value));
  return Cut(simdjson::minify(value));
}

std::string JoinPointer(const std::string& pointer, std::string_view name) {
  std::string joined = pointer + "/";
  for (const char c : name) {
    if (c == '~') {
      joined += "~0";
    } else if (c == '/') {
      joined += "~1";
    } else {
      joined += c;
    }
  }
  return joined;
}

void Complaint::Say(const std::string& pointer, const std::string& what) {
  if (!ok()) return;
  ok_ = false;
  pointer_ = pointer;
  what_ = Readable(what);
}

std::string Complaint::text() const {
  if (ok()) return "";
  return Readable(pointer_.empty() ? std::string("document") : pointer_) + ": " + what_;
}

void Complaint::Expected(const std::string& pointer, const std::string& expected,
                         const JsonValue& found) {
  Say(pointer, fmt::format("expected {}, found {}", expected, DescribeJson(found)));
}

void Complaint::Expected(const std::string& pointer, const std::string& expected,
                         std::string_view found) {
  Say(pointer, fmt::format("expected {}, found {}", expected, Quoted(found)));
}

void Complaint::GivenTwice(const std::string& pointer, std::string_view key) {
  Say(pointer, fmt::format("expected every key once, found {} given twice", Quoted(key)));
}

FieldReader::FieldReader(const JsonValue& value, std::string pointer, Complaint& complaint)
    : pointer_(std::move(pointer)), complaint_(complaint) {
  if (value.get(object_)) complaint_.Expected(pointer_, "an object", value);
}

bool FieldReader::Known(const char* name) {
  known_.emplace_back(name);
  return ok() && !object_.at_key(name).error();
}

std::optional<JsonValue> FieldReader::Take(const char* name) {
  if (!ok()) return std::nullopt;
  JsonValue found;
  if (object_.at_key(name).get(found)) {
    complaint_.Say(pointer_, fmt::format("field \"{}\" is missing", name));
    return std::nullopt;
  }
  known_.emplace_back(name);
  ++taken_;
  return found;
}

void FieldReader::Required(const char* name, std::string& target) {
  const std::optional<JsonValue> value = Take(name);
  if (!value) return;
  std::string_view text;
  if (value->get(text)) return complaint_.Expected(PointerTo(name), "a string", *value);
  target = text;
}

void FieldReader::Required(const char* name, bool& target) {
  const std::optional<JsonValue> value = Take(name);
  if (value && value->get(target)) complaint_.Expected(PointerTo(name), "true or false", *value);
}

void FieldReader::Required(const char* name, double& target) {
  const std::optional<JsonValue> value = Take(name);
  if (value && value->get(target)) complaint_.Expected(PointerTo(name), "a number", *value);
}

namespace {

/// Whether it is an integer in the range; `target` is left alone otherwise.
template <typename Integer>
bool ReadInteger(const JsonValue& value, Integer low, Integer high, Integer& target) {
  Integer read = 0;
  if (value.get(read) || read < low || read > high) return false;
  target = read;
  return true;
}

template <typename Integer>
std::string IntegerFrom(Integer low, Integer high) {
  return fmt::format("an integer from {} to {}", low, high);
}

}  // namespace

void FieldReader::Required(const char* name, int64_t& target, int64_t low, int64_t high) {
  const std::optional<JsonValue> value = Take(name);
  if (!value || ReadInteger(*value, low, high, target)) return;
  complaint_.Expected(PointerTo(name), IntegerFrom(low, high), *value);
}

void FieldReader::Required(const char* name, uint64_t& target, uint64_t low, uint64_t high) {
  const std::optional<JsonValue> value = Take(name);
  if (!value || ReadInteger(*value, low, high, target)) return;
  complaint_.Expected(PointerTo(name), IntegerFrom(low, high), *value);
}

void FieldReader::Required(const char* name, std::vector<std::string>& target) {
  const std::optional<JsonValue> value = Take(name);
  if (value) ParseStrings(*value, PointerTo(name), complaint_, target);
}

void FieldReader::Required(const char* name, std::vector<int64_t>& target, int64_t low,
                           int64_t high) {
  std::vector<int64_t> read;
  ForEach(*this, name, [&](const JsonValue& value, const std::string& pointer) {
    if (ReadInteger(value, low, high, read.emplace_back())) return;
    complaint_.Expected(pointer, IntegerFrom(low, high), value);
  });
  if (ok()) target = std::move(read);
}

void FieldReader::Required(const char* name, std::vector<double>& target) {
  std::vector<double> read;
  ForEach(*this, name, [&](const JsonValue& value, const std::string& pointer) {
    if (value.get(read.emplace_back())) complaint_.Expected(pointer, "a number", value);
  });
  if (ok()) target = std::move(read);
}

void FieldReader::Required(const char* name, std::map<std::string, std::string>& target) {
  std::map<std::string, std::string> read;
  ForEachMember(*this, name,
                [&](const std::string& key, const JsonValue& value, const std::string& pointer) {
                  std::string_view text;
                  if (value.get(text)) return complaint_.Expected(pointer, "a string", value);
                  read[key] = text;
                });
  if (ok()) target = std::move(read);
}

void FieldReader::OneOf(const char* name, const NameTable& names, std::string& target) {
  std::string read;
  Required(name, read);
  if (ok()) CheckName(name, names, read, target);
}

void FieldReader::CheckName(const char* name, const NameTable& names, const std::string& read,
                            std::string& target) {
  if (std::find(names.begin(), names.end(), read) == names.end()) {
    return complaint_.Expected(PointerTo(name), "one of " + ListNames(names), read);
  }
  target = read;
}

std::optional<JsonValue> FieldReader::Object(const char* name) {
  const std::optional<JsonValue> value = Take(name);
  if (!value || value->is_object()) return value;
  complaint_.Expected(PointerTo(name), "an object", *value);
  return std::nullopt;
}

void ParseStrings(const JsonValue& value, const std::string& pointer, Complaint& complaint,
                  std::vector<std::string>& target, const char* expected) {
  std::vector<std::string> read;
  const auto take = [&](const JsonValue& element, const std::string& at) {
    std::string_view text;
    if (element.get(text)) return complaint.Expected(at, "a string", element);
    read.emplace_back(text);
  };
  ForEachElement(value, pointer, complaint, take, expected);
  if (complaint.ok()) target = std::move(read);
}

void FieldReader::Finish() {
  if (!ok() || taken_ == object_.size()) return;
  std::sort(known_.begin(), known_.end());
  known_.erase(std::unique(known_.begin(), known_.end()), known_.end());
  std::set<std::string_view> keys;
  for (const auto member : object_) {
    if (!std::binary_search(known_.begin(), known_.end(), member.key)) {
      return complaint_.Say(pointer_, fmt::format("unknown field {}, expected one of {}",
                                                  Quoted(member.key), ListNames(known_)));
    }
    if (!keys.insert(member.key).second) return complaint_.GivenTwice(pointer_, member.key);
  }
}

}  // namespace shardproof
