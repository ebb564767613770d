#include "src/format/values_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "src/core/strict_json.h"
#include "src/format/value_json.h"
#include "src/text/quote.h"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr int64_t kSchema = 1;
constexpr uint64_t kValuesBytesMax = 64u << 20;

}  // namespace

Status ReadValues(FileSystem& files, const std::string& path,
                  std::map<std::string, std::string>& values) {
  SP_ASSIGN(const std::string text, files.ReadText(path, kValuesBytesMax));
  SP_ASSIGN(const json document, ParseStrictObject(text, path));
  const auto schema = document.find("schema");
  const auto found = document.find("values");
  if (schema == document.end() || *schema != kSchema || found == document.end() ||
      !found->is_object()) {
    return BadInput(fmt::format("{}: expected schema {} and an object values, found {}", path,
                                kSchema, Shown(document)));
  }
  for (const auto& [key, value] : found->items()) {
    SP_ASSIGN(values[key], PickleOfJson(value, fmt::format("{}: {}", path, ShownText(key))));
  }
  return Ok();
}

Result<std::string> ValuesText(const std::map<std::string, std::string>& values) {
  json document = {{"schema", kSchema}, {"values", json::object()}};
  for (const auto& [key, bytes] : values) {
    const std::string what = "value " + text::Quote(key);
    SP_ASSIGN(const pickle::Pickle read, pickle::ReadPickle(bytes, what));
    Result<json> value = JsonOfValue(read.root());
    if (!value.ok()) return value.error().While(what);
    document["values"][key] = std::move(value).value();
  }
  return document.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace shardproof
