#include "src/checkpoint/value_json.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "src/core/strict_json.h"
#include "src/pickle/pickle_writer.h"

namespace shardproof {
namespace {

using nlohmann::json;
using pickle::PickleValue;
using pickle::PickleWriter;
using Kind = PickleValue::Kind;

constexpr int kJsonDepthMax = 50;
constexpr size_t kBitsDigits = 16;

json Named(const char* kind, json content) {
  json named = json::object();
  named[kind] = std::move(content);
  return named;
}

Result<json> Items(const PickleValue& value, int depth);

Result<json> Add(const PickleValue& value, int depth) {
  if (depth > kJsonDepthMax) return BadInput(fmt::format("nests deeper than {}", kJsonDepthMax));
  switch (value.kind) {
    case Kind::kNone:
      return json();
    case Kind::kBool:
      return json(value.integer != 0);
    case Kind::kInteger:
      if (!value.is_big) return json(value.integer);
      break;
    case Kind::kFloat:
      if (std::isfinite(value.number)) return json(value.number);
      return Named("float", fmt::format("{:016x}", std::bit_cast<uint64_t>(value.number)));
    case Kind::kText:
      return json(value.text);
    case Kind::kList:
      return Items(value, depth);
    case Kind::kTuple: {
      SP_ASSIGN(json items, Items(value, depth));
      return Named("tuple", std::move(items));
    }
    case Kind::kDict: {
      json pairs = json::array();
      for (size_t i = 0; i + 1 < value.items.size(); i += 2) {
        SP_ASSIGN(json key, Add(*value.items[i], depth + 1));
        SP_ASSIGN(json item, Add(*value.items[i + 1], depth + 1));
        pairs.push_back(json::array({std::move(key), std::move(item)}));
      }
      return Named("dict", std::move(pairs));
    }
    default:
      break;
  }
  return Unsupported("it has no form in JSON: " + pickle::Describe(value));
}

Result<json> Items(const PickleValue& value, int depth) {
  json items = json::array();
  for (const PickleValue* item : value.items) {
    SP_ASSIGN(json one, Add(*item, depth + 1));
    items.push_back(std::move(one));
  }
  return items;
}

class Writer {
 public:
  explicit Writer(const std::string& where) : where_(where) {}

  Result<std::string> Write(const json& value) {
    SP_TRY(Put(value, 0));
    return out_.Finish();
  }

 private:
  Error Wrong(const json& found) const {
    return BadInput(fmt::format(
        "{}: expected null, a boolean, an integer of 64 bits, a float, a text, a list, or an "
        "object that says that it is a tuple, dict or float, found {}",
        where_, Shown(found)));
  }

  Status Put(const json& value, int depth) {
    if (depth > kJsonDepthMax)
      return Wrong("what nests deeper than " + std::to_string(kJsonDepthMax));
    switch (value.type()) {
      case json::value_t::null:
        out_.None();
        return Ok();
      case json::value_t::boolean:
        out_.Bool(value.get<bool>());
        return Ok();
      case json::value_t::number_unsigned:
        if (value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return Wrong(value);
        [[fallthrough]];
      case json::value_t::number_integer:
        out_.Integer(value.get<int64_t>());
        return Ok();
      case json::value_t::number_float:
        out_.Float(value.get<double>());
        return Ok();
      case json::value_t::string:
        out_.Text(value.get_ref<const std::string&>());
        return Ok();
      case json::value_t::array:
        out_.EmptyList();
        out_.Mark();
        for (const json& item : value) SP_TRY(Put(item, depth + 1));
        out_.Appends();
        return Ok();
      case json::value_t::object:
        if (value.size() == 1) return PutNamed(value.begin().key(), *value.begin(), value, depth);
        return Wrong(value);
      default:
        return Wrong(value);
    }
  }

  Status PutNamed(const std::string& kind, const json& value, const json& whole, int depth) {
    if (kind == "float") {
      const auto bits =
          value.is_string() ? Bits(value.get_ref<const std::string&>()) : std::nullopt;
      if (!bits) return Wrong(whole);
      out_.Float(std::bit_cast<double>(*bits));
      return Ok();
    }
    if (!value.is_array()) return Wrong(whole);
    if (kind == "tuple") {
      out_.Mark();
      for (const json& item : value) SP_TRY(Put(item, depth + 1));
      out_.Tuple();
      return Ok();
    }
    if (kind != "dict") return Wrong(whole);
    out_.EmptyDict();
    out_.Mark();
    for (const json& pair : value) {
      if (!pair.is_array() || pair.size() != 2) return Wrong(whole);
      SP_TRY(Put(pair[0], depth + 1));
      SP_TRY(Put(pair[1], depth + 1));
    }
    out_.SetItems();
    return Ok();
  }

  static std::optional<uint64_t> Bits(const std::string& digits) {
    uint64_t bits = 0;
    const char* end = digits.data() + digits.size();
    const auto [read, error] = std::from_chars(digits.data(), end, bits, 16);
    if (digits.size() != kBitsDigits || error != std::errc() || read != end) return std::nullopt;
    return bits;
  }

  const std::string& where_;
  PickleWriter out_;
};

}  // namespace

Result<json> JsonOfValue(const PickleValue& value) { return Add(value, 0); }

Result<std::string> PickleOfJson(const json& value, const std::string& where) {
  return Writer(where).Write(value);
}

}  // namespace shardproof
