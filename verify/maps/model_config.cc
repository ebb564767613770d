#include "verify/maps/model_config.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "verify/oracle/input_file.h"
#include "verify/oracle/json.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"

namespace shardproof::maps {
namespace {

constexpr uint64_t kConfigBytesMax = 16u << 20;
constexpr int64_t kNumberMax = int64_t{1} << 50;

/// nullopt: there is no such file, or no such field.
Result<std::optional<int64_t>> FieldOf(const std::string& path, const std::string& field) {
  if (!oracle::Exists(path)) return std::optional<int64_t>();
  SP_ASSIGN(const std::string text, oracle::ReadWholeFile(path, kConfigBytesMax));
  simdjson::dom::parser parser;
  SP_ASSIGN(simdjson::dom::object object, oracle::ParseObject(parser, path, text));
  std::string rest = field;
  while (true) {
    const size_t dot = rest.find('.');
    oracle::JsonElement value;
    if (object.at_key(rest.substr(0, dot)).get(value)) return std::optional<int64_t>();
    if (dot == std::string::npos) {
      SP_ASSIGN(const int64_t number,
                oracle::AsInteger(oracle::Printable(path), field, value, -kNumberMax, kNumberMax));
      return std::optional(number);
    }
    if (value.get_object().get(object)) return std::optional<int64_t>();
    rest.erase(0, dot + 1);
  }
}

}  // namespace

std::string ConfigFolder(const std::string& checkpoint) {
  if (oracle::IsDirectory(checkpoint)) return checkpoint;
  const std::string folder = std::filesystem::path(checkpoint).parent_path();
  return folder.empty() ? "." : folder;
}

ConfigField ConfigOf(const std::vector<std::string>& checkpoints) {
  return [checkpoints](const std::string& field) -> Result<int64_t> {
    std::optional<int64_t> number;
    std::string source;
    for (const std::string& checkpoint : checkpoints) {
      const std::string path = ConfigFolder(checkpoint) + "/config.json";
      SP_ASSIGN(const std::optional<int64_t> own, FieldOf(path, field));
      if (!own) continue;
      if (number && *number != *own) {
        return BadInput(fmt::format("config.{}: expected one number, found {} in {} and {} in {}",
                                    field, *number, source, *own, oracle::Printable(path)));
      }
      number = own;
      source = oracle::Printable(path);
    }
    if (number) return *number;
    return BadInput(
        fmt::format("config.{}: expected it in {}, found it in none", field,
                    oracle::Printable(ConfigFolder(checkpoints.front()) + "/config.json")));
  };
}

}  // namespace shardproof::maps
