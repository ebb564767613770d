// What an earlier run compared, from the JSON that it left.
#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "verify/case/json_fields.h"
#include "verify/gate/gate.h"

namespace shardproof::gate {
namespace {

/// The comparisons of each property: a list of objects, or of generated cases an object by id.
void ReadProperties(const JsonValue& properties, std::map<std::string, uint64_t>& counts) {
  simdjson::dom::array list;
  simdjson::dom::object by_id;
  const auto add = [&](std::string_view id, const JsonValue& property) {
    uint64_t count = 0;
    if (!property["comparisons"].get(count)) counts[std::string(id)] = count;
  };
  if (!properties.get(list)) {
    for (const JsonValue property : list) {
      std::string_view id;
      if (!property["id"].get(id)) add(id, property);
    }
  } else if (!properties.get(by_id)) {
    for (const auto property : by_id) add(property.key, property.value);
  }
}

}  // namespace

Result<Baseline> ReadBaseline(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    return BadInput(fmt::format("--baseline {}: cannot be read", path));
  }
  simdjson::dom::parser parser;
  const auto root = ParseJson(parser, text.str());
  if (!root.ok()) return root.error().While("--baseline " + path);
  Baseline baseline{.path = path, .comparisons = 0, .properties = {}};
  for (const char* at : {"", "/compared", "/summary"}) {
    uint64_t count = 0;
    JsonValue properties;
    if (!root.value().at_pointer(std::string(at) + "/comparisons").get(count)) {
      baseline.comparisons = count;
    }
    if (!root.value().at_pointer(std::string(at) + "/properties").get(properties)) {
      ReadProperties(properties, baseline.properties);
    }
  }
  if (baseline.comparisons > 0) return baseline;
  return BadInput(fmt::format(
      "--baseline {}: expected the JSON result of an earlier run that made comparisons, found {}",
      path, root.value().at_key("verdict").error() ? "no verdict" : "no comparisons"));
}

}  // namespace shardproof::gate
