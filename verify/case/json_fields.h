// Strict reading of JSON: every field typed and ranged, unknown and repeated fields refused, and a
// complaint that names the field by JSON pointer, what was expected and what was found. Used for
// cases and for evidence, both of which are hostile until read.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/result.h"
#include "verify/case/names.h"

namespace shardproof {

/// A value of a parsed text. The parser owns it, until it parses another or ends.
using JsonValue = simdjson::dom::element;

/// Parses text that anybody may have written. \error kBadInput on a syntax error, a byte that is
/// not UTF-8, a number that fits neither 64 bits nor a double, or nesting deeper than 1024.
Result<JsonValue> ParseJson(simdjson::dom::parser& parser, const std::string& text);

/// The text for a file or a terminal; bytes that are not UTF-8 become U+FFFD rather than an error.
std::string DumpJson(const nlohmann::json& json, int indent = -1);

/// What a value looks like in a message: scalars as they are (cut to a readable length), else the
/// type.
std::string DescribeJson(const JsonValue& value);

/// pointer + "/" + name, escaped as RFC 6901 says.
std::string JoinPointer(const std::string& pointer, std::string_view name);

/// Keeps the first complaint of a whole document; later ones follow from it and are dropped.
class Complaint {
 public:
  bool ok() const { return ok_; }
  void Say(const std::string& pointer, const std::string& what);
  void Expected(const std::string& pointer, const std::string& expected, const JsonValue& found);
  void Expected(const std::string& pointer, const std::string& expected, std::string_view found);
  void GivenTwice(const std::string& pointer, std::string_view key);
  Status ToStatus() const { return ok() ? Ok() : Status(BadInput(text())); }
  const std::string& pointer() const { return pointer_; }
  const std::string& what() const { return what_; }  ///< without the pointer
  /// Both, or "".
  std::string text() const;

 private:
  bool ok_ = true;
  std::string pointer_;
  std::string what_;
};

/// Reads one object. Every call names a field; Finish refuses all fields that no call named, and
/// any that is given twice. After the first complaint the calls leave their targets alone.
class FieldReader {
 public:
  FieldReader(const JsonValue& value, std::string pointer, Complaint& complaint);

  void Required(const char* name, std::string& target);
  void Required(const char* name, bool& target);
  void Required(const char* name, double& target);
  void Required(const char* name, int64_t& target, int64_t low = INT64_MIN,
                int64_t high = INT64_MAX);
  void Required(const char* name, uint64_t& target, uint64_t low = 0, uint64_t high = UINT64_MAX);
  void Required(const char* name, std::vector<std::string>& target);
  void Required(const char* name, std::vector<int64_t>& target, int64_t low, int64_t high);
  void Required(const char* name, std::vector<double>& target);
  void Required(const char* name, std::map<std::string, std::string>& target);

  /// As Required, but a field that is not there leaves the target as it is.
  template <typename T, typename... Limits>
  void Optional(const char* name, T& target, Limits... limits) {
    if (Known(name)) Required(name, target, limits...);
  }

  template <typename T, typename... Limits>
  void Optional(const char* name, std::optional<T>& target, Limits... limits) {
    if (!Known(name)) return;
    T value{};
    Required(name, value, limits...);
    target = value;
  }

  /// A string that must be one of `names`; the message lists them.
  void OneOf(const char* name, const NameTable& names, std::string& target);
  /// The same of one that has been read.
  void CheckName(const char* name, const NameTable& names, const std::string& read,
                 std::string& target);

  /// For nested values: whatever it is, or none with a complaint if it is missing.
  std::optional<JsonValue> Take(const char* name);
  /// Likewise, and if it is of another type.
  std::optional<JsonValue> Object(const char* name);

  /// Notes that the object may have this field. \returns whether it does.
  bool Known(const char* name);
  std::string PointerTo(std::string_view name) const { return JoinPointer(pointer_, name); }
  const std::string& pointer() const { return pointer_; }
  Complaint& complaint() { return complaint_; }
  bool ok() const { return complaint_.ok(); }
  void Finish();

 private:
  simdjson::dom::object object_;
  std::string pointer_;
  Complaint& complaint_;
  std::vector<std::string_view> known_;
  size_t taken_ = 0;
};

/// Calls read(element, pointer) for each element of an array until there is a complaint.
/// \param expected  what is told if it is no array
template <typename Read>
void ForEachElement(const JsonValue& value, const std::string& pointer, Complaint& complaint,
                    Read read, const char* expected = "an array") {
  simdjson::dom::array array;
  if (value.get(array)) return complaint.Expected(pointer, expected, value);
  size_t i = 0;
  for (const JsonValue element : array) {
    if (!complaint.ok()) return;
    read(element, pointer + "/" + std::to_string(i++));
  }
}

/// The same of a field.
template <typename Read>
void ForEach(FieldReader& fields, const char* name, Read read) {
  const std::optional<JsonValue> value = fields.Take(name);
  if (value) ForEachElement(*value, fields.PointerTo(name), fields.complaint(), read);
}

/// An array of strings. Complains otherwise.
void ParseStrings(const JsonValue& value, const std::string& pointer, Complaint& complaint,
                  std::vector<std::string>& target, const char* expected = "an array");

/// Calls read(key, value, pointer) for each member of an object until there is a complaint, which
/// there is of a key that is given twice.
template <typename Read>
void ForEachMember(FieldReader& fields, const char* name, Read read) {
  const std::optional<JsonValue> object = fields.Object(name);
  if (!object) return;
  std::set<std::string_view> keys;
  for (const auto member : simdjson::dom::object(*object)) {
    if (!keys.insert(member.key).second)
      fields.complaint().GivenTwice(fields.PointerTo(name), member.key);
    if (!fields.ok()) return;
    const std::string key(member.key);
    read(key, JsonValue(member.value), JoinPointer(fields.PointerTo(name), key));
  }
}

}  // namespace shardproof
