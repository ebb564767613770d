#include "src/core/strict_json.h"

#include <fmt/format.h>

#include <optional>
#include <unordered_set>
#include <vector>

namespace shardproof {
namespace {

using nlohmann::json;

constexpr size_t kDepthMax = 64;
constexpr size_t kShownBytesMax = 200;

std::string Shortened(std::string text) {
  if (text.size() <= kShownBytesMax) return text;
  return text.substr(0, kShownBytesMax) + "...";
}

std::string Ascii(const json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
}

/// Looks for what the library would build silently, and builds nothing. (Its parser with a callback
/// does both in one go, in time that grows with the square of an object's members.)
class Watcher : public nlohmann::json_sax<json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Open(); }
  bool start_array(std::size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    if (!duplicate_ && !keys_.back().insert(name).second) duplicate_ = name;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception&) override {
    return false;
  }

  bool too_deep() const { return too_deep_; }
  const std::optional<std::string>& duplicate() const { return duplicate_; }

 private:
  bool Open() {
    keys_.emplace_back();
    too_deep_ = keys_.size() > kDepthMax;
    return !too_deep_;
  }
  bool Close() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::unordered_set<std::string>> keys_;  // of what is open; an array has none
  std::optional<std::string> duplicate_;
  bool too_deep_ = false;
};

}  // namespace

Result<json> ParseStrictObject(std::string_view text, const std::string& origin) {
  // The library takes it for the end of the text, whatever follows.
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    return BadInput(fmt::format("{}: is not valid JSON: a zero at byte {}", origin, zero));
  }
  Watcher watcher;
  const bool valid = json::sax_parse(text, &watcher);
  if (watcher.too_deep()) {
    return BadInput(fmt::format("{}: is nested deeper than {}", origin, kDepthMax));
  }
  if (!valid) return BadInput(fmt::format("{}: is not valid JSON", origin));
  if (watcher.duplicate()) {
    return BadInput(
        fmt::format("{}: key {} occurs twice", origin, ShownText(*watcher.duplicate())));
  }
  json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return BadInput(fmt::format("{}: is not a JSON object", origin));
  return document;
}

std::string Shown(const json& value) { return Shortened(Ascii(value)); }

std::string ShownText(const std::string& text) {
  const std::string quoted = Ascii(text);
  return "'" + Shortened(quoted.substr(1, quoted.size() - 2)) + "'";
}

}  // namespace shardproof
