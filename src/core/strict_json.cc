#include "src/core/strict_json.h"

#include <fmt/format.h>

#include <set>
#include <vector>

namespace shardproof {
namespace {

using nlohmann::json;

constexpr int kDepthMax = 64;
constexpr size_t kShownBytesMax = 200;

std::string Shortened(std::string text) {
  if (text.size() <= kShownBytesMax) return text;
  return text.substr(0, kShownBytesMax) + "...";
}

std::string Ascii(const json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
}

}  // namespace

Result<json> ParseStrictObject(std::string_view text, const std::string& origin) {
  std::vector<std::set<std::string>> open;
  std::string duplicate;
  bool has_duplicate = false;
  bool too_deep = false;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) open.emplace_back();
    if (event == json::parse_event_t::object_end) open.pop_back();
    if (event == json::parse_event_t::key && !open.back().insert(value.get<std::string>()).second) {
      duplicate = value.get<std::string>();
      has_duplicate = true;
    }
    too_deep = too_deep || depth > kDepthMax;
    return depth <= kDepthMax;  // what lies deeper is not even built
  };
  json document = json::parse(text, watch, /*allow_exceptions=*/false);
  if (too_deep) return BadInput(fmt::format("{}: is nested deeper than {}", origin, kDepthMax));
  if (document.is_discarded()) return BadInput(fmt::format("{}: is not valid JSON", origin));
  if (has_duplicate) {
    return BadInput(fmt::format("{}: key {} occurs twice", origin, ShownText(duplicate)));
  }
  if (!document.is_object()) return BadInput(fmt::format("{}: is not a JSON object", origin));
  return document;
}

std::string Shown(const json& value) { return Shortened(Ascii(value)); }

std::string ShownText(const std::string& text) {
  const std::string quoted = Ascii(text);
  return "'" + Shortened(quoted.substr(1, quoted.size() - 2)) + "'";
}

}  // namespace shardproof
