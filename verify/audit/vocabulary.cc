#include "verify/audit/vocabulary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <regex>

#include "verify/maps/model_config.h"
#include "verify/oracle/header.h"
#include "verify/oracle/json.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

using oracle::JsonElement;

constexpr uint64_t kConfigBytesMax = 64u << 20;
constexpr int kNestedMax = 8;

/// The smallest vocabulary that is named anywhere in the config; 0: none is.
int64_t SmallestVocabulary(const JsonElement& element, int depth) {
  simdjson::dom::object object;
  int64_t smallest = 0;
  if (depth > kNestedMax || element.get(object)) return smallest;
  for (const auto& [key, value] : object) {
    int64_t size = 0;
    if (!value.get(size)) {
      const bool is_of_types = key == "type_vocab_size";  // of BERT's segments
      if ((key != "vocab_size" && !key.ends_with("_vocab_size")) || is_of_types) continue;
    } else {
      size = SmallestVocabulary(value, depth + 1);
    }
    if (size > 0 && (smallest == 0 || size < smallest)) smallest = size;
  }
  return smallest;
}

bool IsOverVocabulary(const std::string& name) {
  static const std::regex kNames(
      R"(^((.*\.)?(embed_tokens|wte|word_embeddings|tok_embeddings|embed_in|lm_head|embed_out))"
      R"(|(model\.)?shared|backbone\.embeddings)\.weight$)");
  // Files of ranks have the rows of ranks, and the file's name before the tensor's.
  return name.find('/') == std::string::npos && name.size() < 1000 &&
         std::regex_match(name, kNames);
}

}  // namespace

void HoldVocabulary(AuditResult& result) {
  simdjson::dom::parser parser;
  const auto config =
      oracle::FindJson(parser, maps::ConfigFolder(result.path) + "/config.json", kConfigBytesMax);
  if (!config) return;
  const int64_t vocabulary = SmallestVocabulary(*config, 0);
  for (const AuditedTensor& tensor : result.tensors) {
    if (tensor.shape.size() != 2 || tensor.shape[0] >= vocabulary) continue;
    if (!IsOverVocabulary(tensor.name)) continue;
    result.damage.push_back(fmt::format(
        "{}: tensor {}: expected at least the {} rows that config.json has as vocab_size, found "
        "[{}]",
        oracle::Printable(result.path), oracle::Quote(tensor.name), vocabulary,
        fmt::join(tensor.shape, ", ")));
  }
}

}  // namespace shardproof
