#include "src/load/training_source.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "src/format/value_json.h"
#include "src/core/strict_json.h"
#include "src/text/quote.h"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr int64_t kSchema = 1;
constexpr uint64_t kValuesBytesMax = 64u << 20;

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

}  // namespace

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

Status AddTrainingState(FileSystem& files, const std::string& directory, Source& source) {
  const std::string folder = directory + "/" + kTrainingFolder;
  const bool any =
      files.Exists(folder + "/" + kStateIndexName) || files.Exists(folder + "/" + kValuesName);
  if (!any) return Ok();
  SP_ASSIGN(Source state, OpenIndexed(files, folder, kStateIndexName));
  const auto first_file = static_cast<int64_t>(source.files.size());
  for (auto& [name, tensor] : state.tensors) {
    if (source.tensors.contains(name)) {
      return BadInput(
          fmt::format("{}: tensor {}: the model has one of that name", folder, text::Quote(name)));
    }
    tensor.file += first_file;
    source.state.emplace(name, std::move(tensor));
  }
  for (auto& file : state.files) source.files.push_back(std::move(file));
  for (auto& path : state.paths) source.paths.push_back(std::move(path));
  return ReadValues(files, folder + "/" + kValuesName, source.values);
}

}  // namespace shardproof
