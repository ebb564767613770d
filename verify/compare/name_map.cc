#include "verify/compare/name_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "verify/oracle/input_file.h"
#include "verify/oracle/json.h"
#include "verify/oracle/quote.h"
#include "verify/oracle/safetensors_writer.h"

namespace shardproof::compare {
namespace {

using oracle::AsInteger;
using oracle::AsString;
using oracle::Describe;
using oracle::JsonElement;
using oracle::JsonMember;
using oracle::Members;
using oracle::Quote;

constexpr uint64_t kMapBytesMax = 100'000'000;
constexpr int64_t kDimsMax = 64;
constexpr char kFields[] = "schema, why, strip_prefix, add_prefix, rename, fuse, split, transpose";

Error Wrong(const std::string& where, const std::string& field, const std::string& expected,
            const JsonElement& found) {
  return BadInput(
      fmt::format("{}: {}: expected {}, found {}", where, field, expected, Describe(found)));
}

/// One rule's fields; every one must be known and there.
class Rule {
 public:
  static Result<Rule> Of(const std::string& where, const std::string& field,
                         const JsonElement& value, const std::vector<std::string_view>& names) {
    simdjson::dom::object object;
    if (value.get_object().get(object)) return Wrong(where, field, "an object", value);
    SP_ASSIGN(std::vector<JsonMember> members, Members(where + ": " + field, object));
    for (const JsonMember& member : members) {
      bool known = false;
      for (const std::string_view name : names) known = known || name == member.key;
      if (!known) {
        return BadInput(fmt::format("{}: {}: expected the fields {}, found {}", where, field,
                                    fmt::join(names, ", "), Quote(member.key)));
      }
    }
    if (members.size() != names.size()) {
      return BadInput(fmt::format("{}: {}: expected the fields {}, found {} of them", where, field,
                                  fmt::join(names, ", "), members.size()));
    }
    return Rule(where + ": " + field, std::move(members));
  }

  Result<std::string> Text(const std::string& name) const {
    SP_ASSIGN(const std::string_view text, AsString(where_, name, Get(name)));
    return std::string(text);
  }

  Result<size_t> Dim(const std::string& name) const {
    SP_ASSIGN(const int64_t dim, AsInteger(where_, name, Get(name), 0, kDimsMax - 1));
    return static_cast<size_t>(dim);
  }

  Result<std::vector<std::string>> Texts(const std::string& name) const {
    std::vector<std::string> texts;
    simdjson::dom::array array;
    if (Get(name).get_array().get(array)) return Wrong(where_, name, "an array", Get(name));
    for (const JsonElement item : array) {
      SP_ASSIGN(const std::string_view text, AsString(where_, name, item));
      texts.emplace_back(text);
    }
    if (texts.empty()) return Wrong(where_, name, "at least one name", Get(name));
    return texts;
  }

  Result<std::vector<size_t>> TwoDims(const std::string& name) const {
    std::vector<size_t> dims;
    simdjson::dom::array array;
    if (Get(name).get_array().get(array) || array.size() != 2) {
      return Wrong(where_, name, "an array of two dims", Get(name));
    }
    for (const JsonElement item : array) {
      SP_ASSIGN(const int64_t dim, AsInteger(where_, name, item, 0, kDimsMax - 1));
      dims.push_back(static_cast<size_t>(dim));
    }
    return dims;
  }

 private:
  Rule(std::string where, std::vector<JsonMember> members)
      : where_(std::move(where)), members_(std::move(members)) {}

  const JsonElement& Get(std::string_view name) const {
    size_t i = 0;
    while (i + 1 < members_.size() && members_[i].key != name) ++i;
    return members_[i].value;
  }

  std::string where_;
  std::vector<JsonMember> members_;
};

Status ReadRename(const JsonElement& value, NameMap& map) {
  simdjson::dom::object object;
  if (value.get_object().get(object)) return Wrong(map.where, "rename", "an object", value);
  SP_ASSIGN(const std::vector<JsonMember> members, Members(map.where + ": rename", object));
  for (const JsonMember& member : members) {
    SP_ASSIGN(const std::string_view to,
              AsString(map.where, "rename " + Quote(member.key), member.value));
    map.rename.emplace(member.key, to);
  }
  return Ok();
}

Status ReadRule(const std::string& kind, const std::string& field, const JsonElement& value,
                NameMap& map) {
  if (kind == "transpose") {
    SP_ASSIGN(const Rule rule, Rule::Of(map.where, field, value, {"name", "dims"}));
    SP_ASSIGN(const std::string name, rule.Text("name"));
    SP_ASSIGN(const std::vector<size_t> dims, rule.TwoDims("dims"));
    map.transpose.push_back({name, dims[0], dims[1]});
    return Ok();
  }
  SP_ASSIGN(const Rule rule, Rule::Of(map.where, field, value, {"from", "to", "dim"}));
  SP_ASSIGN(const size_t dim, rule.Dim("dim"));
  if (kind == "fuse") {
    SP_ASSIGN(const std::vector<std::string> from, rule.Texts("from"));
    SP_ASSIGN(const std::string to, rule.Text("to"));
    map.fuse.push_back({from, to, dim});
  } else {
    SP_ASSIGN(const std::string from, rule.Text("from"));
    SP_ASSIGN(const std::vector<std::string> to, rule.Texts("to"));
    map.split.push_back({from, to, dim});
  }
  return Ok();
}

Status ReadRules(const std::string& kind, const JsonElement& value, NameMap& map) {
  simdjson::dom::array rules;
  if (value.get_array().get(rules)) return Wrong(map.where, kind, "an array of rules", value);
  size_t number = 0;
  for (const JsonElement rule : rules) {
    SP_TRY(ReadRule(kind, fmt::format("{}[{}]", kind, number++), rule, map));
  }
  return Ok();
}

Status ReadField(const JsonMember& member, NameMap& map) {
  const std::string key(member.key);
  if (key == "schema") {
    SP_TRY(AsInteger(map.where, key, member.value, 1, 1));
  } else if (key == "why") {
    SP_TRY(AsString(map.where, key, member.value));
  } else if (key == "strip_prefix" || key == "add_prefix") {
    SP_ASSIGN(const std::string_view text, AsString(map.where, key, member.value));
    (key == "strip_prefix" ? map.strip_prefix : map.add_prefix) = std::string(text);
  } else if (key == "rename") {
    return ReadRename(member.value, map);
  } else if (key == "fuse" || key == "split" || key == "transpose") {
    return ReadRules(key, member.value, map);
  } else {
    return BadInput(
        fmt::format("{}: expected the fields {}, found {}", map.where, kFields, Quote(member.key)));
  }
  return Ok();
}

}  // namespace

Result<NameMap> ReadNameMap(const std::string& path) {
  SP_ASSIGN(const std::string text, oracle::ReadWholeFile(path, kMapBytesMax));
  simdjson::dom::parser parser;
  SP_ASSIGN(const simdjson::dom::object root, oracle::ParseObject(parser, path, text));
  NameMap map;
  map.where = oracle::Printable(path);
  SP_ASSIGN(const std::vector<JsonMember> members, Members(map.where, root));
  for (const JsonMember& member : members) SP_TRY(ReadField(member, map));
  return map;
}

std::string NameMapText(const NameMap& map) {
  std::string text = "{\"schema\": 1";
  if (!map.strip_prefix.empty()) {
    text += ",\n \"strip_prefix\": " + oracle::JsonString(map.strip_prefix);
  }
  if (!map.add_prefix.empty()) {
    text += ",\n \"add_prefix\": " + oracle::JsonString(map.add_prefix);
  }
  const char* separator = ",\n \"rename\": {\n  ";
  for (const auto& [from, to] : map.rename) {
    text += separator + oracle::JsonString(from) + ": " + oracle::JsonString(to);
    separator = ",\n  ";
  }
  if (!map.rename.empty()) text += "}";
  return text + "}\n";
}

}  // namespace shardproof::compare
