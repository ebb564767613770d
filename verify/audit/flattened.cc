#include "verify/audit/flattened.h"

#include "verify/oracle/header.h"
#include "verify/oracle/json.h"

namespace shardproof {
namespace {

/// \param text  what the header says of the weight, JSON.
void AddParts(const std::string& file, const std::string& weight, const std::string& text,
              std::vector<FlattenedPart>& out) {
  simdjson::dom::parser parser;
  simdjson::dom::array ends;
  if (parser.parse(text)["_tensor_data_names"].get(ends)) return;
  const size_t dot = weight.rfind('.');
  const size_t last = dot == std::string::npos ? 0 : dot + 1;
  for (const oracle::JsonElement& each : ends) {
    std::string_view end;
    if (each.get(end)) continue;
    const std::string name =
        weight.substr(0, last) + "_" + weight.substr(last) + "_" + std::string(end);
    out.push_back({name, weight, file});
  }
}

}  // namespace

std::vector<FlattenedPart> FlattenedPartsOf(const formats::StoredCheckpoint& checkpoint) {
  std::vector<FlattenedPart> out;
  if (checkpoint.format != "safetensors") return out;
  for (const formats::StoredFile& file : checkpoint.files) {
    const auto input = oracle::InputFile::Open(file.path);
    if (!input.ok()) continue;
    const auto said = oracle::ReadMetadata(*input.value());
    if (!said.ok()) continue;
    for (const auto& [weight, text] : said.value()) AddParts(file.name, weight, text, out);
  }
  return out;
}

}  // namespace shardproof
