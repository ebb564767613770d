#include "verify/case/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace shardproof {
namespace {

using nlohmann::json;

constexpr int kDepthMax = 64;

// nlohmann's parser keeps its own stack, but what walks the value afterwards recurses; so depth is
// bounded before a value exists.
Status CheckDepth(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kDepthMax) {
        return BadInput(fmt::format("JSON nested deeper than {} levels at byte {}", kDepthMax, i));
      }
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return Ok();
}

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

Result<json> Parse(std::string_view text, const json::parser_callback_t& callback) {
  SP_TRY(CheckDepth(text));
  try {
    return json::parse(text.begin(), text.end(), callback);
  } catch (const json::exception& error) {
    return BadInput("not JSON: " + Readable(error.what()));
  }
}

}  // namespace

Result<json> ParseJsonText(std::string_view text) {
  std::vector<std::set<std::string>> keys;
  std::string repeated;
  auto result = Parse(text, [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && repeated.empty() &&
        !keys.back().insert(parsed.get<std::string>()).second) {
      repeated = parsed.get<std::string>();
    }
    return true;
  });
  if (result.ok() && !repeated.empty()) {
    return BadInput(
        fmt::format("key \"{}\" is given twice in one object; expected once", Readable(repeated)));
  }
  return result;
}

Result<json> ParseJsonLine(std::string_view text) { return Parse(text, nullptr); }

std::string DumpJson(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string DescribeJson(const json& value) {
  constexpr size_t kShown = 80;
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  return text;
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
  text_ = Readable(pointer.empty() ? std::string("document") : pointer) + ": " + Readable(what);
}

void Complaint::Expected(const std::string& pointer, const std::string& expected,
                         const json& found) {
  Say(pointer, fmt::format("expected {}, found {}", expected, DescribeJson(found)));
}

FieldReader::FieldReader(const json& object, std::string pointer, Complaint& complaint)
    : object_(object), pointer_(std::move(pointer)), complaint_(complaint) {
  if (!object_.is_object()) complaint_.Expected(pointer_, "an object", object_);
}

bool FieldReader::Known(const char* name) {
  known_.emplace_back(name);
  return ok() && object_.contains(name);
}

const json* FieldReader::Take(const char* name) {
  if (!ok()) return nullptr;
  const auto found = object_.find(name);
  if (found == object_.end()) {
    complaint_.Say(pointer_, fmt::format("field \"{}\" is missing", name));
    return nullptr;
  }
  known_.emplace_back(name);
  ++taken_;
  return &*found;
}

void FieldReader::Required(const char* name, std::string& target) {
  const json* value = Take(name);
  if (value == nullptr) return;
  if (!value->is_string()) return complaint_.Expected(PointerTo(name), "a string", *value);
  target = value->get_ref<const std::string&>();
}

void FieldReader::Required(const char* name, bool& target) {
  const json* value = Take(name);
  if (value == nullptr) return;
  if (!value->is_boolean()) return complaint_.Expected(PointerTo(name), "true or false", *value);
  target = value->get<bool>();
}

void FieldReader::Required(const char* name, double& target) {
  const json* value = Take(name);
  if (value == nullptr) return;
  if (!value->is_number()) return complaint_.Expected(PointerTo(name), "a number", *value);
  target = value->get<double>();
}

namespace {

// nlohmann keeps 0..2^64-1 as unsigned and the rest as signed or, beyond both, as a double.
bool InRange(const json& value, int64_t low, int64_t high) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return false;
  }
  return value.get<int64_t>() >= low && value.get<int64_t>() <= high;
}

bool InRange(const json& value, uint64_t low, uint64_t high) {
  if (!value.is_number_integer()) return false;
  if (!value.is_number_unsigned() && value.get<int64_t>() < 0) return false;
  return value.get<uint64_t>() >= low && value.get<uint64_t>() <= high;
}

}  // namespace

void FieldReader::Required(const char* name, int64_t& target, int64_t low, int64_t high) {
  const json* value = Take(name);
  if (value == nullptr) return;
  if (!InRange(*value, low, high)) {
    return complaint_.Expected(PointerTo(name), fmt::format("an integer from {} to {}", low, high),
                               *value);
  }
  target = value->get<int64_t>();
}

void FieldReader::Required(const char* name, uint64_t& target, uint64_t low, uint64_t high) {
  const json* value = Take(name);
  if (value == nullptr) return;
  if (!InRange(*value, low, high)) {
    return complaint_.Expected(PointerTo(name), fmt::format("an integer from {} to {}", low, high),
                               *value);
  }
  target = value->get<uint64_t>();
}

void FieldReader::Required(const char* name, std::vector<std::string>& target) {
  std::vector<std::string> read;
  ForEach(*this, name, [&](const json& value, const std::string& pointer) {
    if (!value.is_string()) return complaint_.Expected(pointer, "a string", value);
    read.push_back(value.get_ref<const std::string&>());
  });
  if (ok()) target = std::move(read);
}

void FieldReader::Required(const char* name, std::vector<int64_t>& target, int64_t low,
                           int64_t high) {
  const json* array = Array(name);
  if (array == nullptr) return;
  std::vector<int64_t> read;
  for (size_t i = 0; i < array->size(); ++i) {
    const json& value = (*array)[i];
    if (!InRange(value, low, high)) {
      return complaint_.Expected(PointerTo(name) + "/" + std::to_string(i),
                                 fmt::format("an integer from {} to {}", low, high), value);
    }
    read.push_back(value.get<int64_t>());
  }
  target = std::move(read);
}

void FieldReader::Required(const char* name, std::vector<double>& target) {
  const json* array = Array(name);
  if (array == nullptr) return;
  std::vector<double> read;
  for (size_t i = 0; i < array->size(); ++i) {
    const json& value = (*array)[i];
    if (!value.is_number()) {
      return complaint_.Expected(PointerTo(name) + "/" + std::to_string(i), "a number", value);
    }
    read.push_back(value.get<double>());
  }
  target = std::move(read);
}

void FieldReader::Required(const char* name, std::map<std::string, std::string>& target) {
  std::map<std::string, std::string> read;
  ForEachMember(*this, name,
                [&](const std::string& key, const json& value, const std::string& pointer) {
                  if (!value.is_string()) return complaint_.Expected(pointer, "a string", value);
                  read[key] = value.get_ref<const std::string&>();
                });
  if (ok()) target = std::move(read);
}

void FieldReader::OneOf(const char* name, const NameTable& names, std::string& target) {
  std::string read;
  Required(name, read);
  if (!ok()) return;
  if (std::find(names.begin(), names.end(), read) == names.end()) {
    return complaint_.Expected(PointerTo(name), "one of " + ListNames(names), json(read));
  }
  target = std::move(read);
}

const json* FieldReader::Array(const char* name) {
  const json* value = Take(name);
  if (value == nullptr || value->is_array()) return value;
  complaint_.Expected(PointerTo(name), "an array", *value);
  return nullptr;
}

const json* FieldReader::Object(const char* name) {
  const json* value = Take(name);
  if (value == nullptr || value->is_object()) return value;
  complaint_.Expected(PointerTo(name), "an object", *value);
  return nullptr;
}

void FieldReader::Finish() {
  if (!ok() || taken_ == object_.size()) return;
  std::sort(known_.begin(), known_.end());
  known_.erase(std::unique(known_.begin(), known_.end()), known_.end());
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) {
      return complaint_.Say(pointer_, fmt::format("unknown field {}, expected one of {}",
                                                  DescribeJson(json(key)), ListNames(known_)));
    }
  }
}

}  // namespace shardproof
