// From a config.json to the tensors of its model: which architecture it is, of those known.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "verify/oracle/adapter.h"
#include "verify/oracle/architectures.h"
#include "verify/oracle/declare.h"
#include "verify/oracle/input_file.h"
#include "verify/oracle/oracle.h"
#include "verify/oracle/quantised_config.h"
#include "verify/oracle/quote.h"

namespace shardproof::oracle {
namespace {

struct Architecture {
  const char* name;
  const char* model_type;
  DeclareArchitecture declare;
  bool reads_quantised = false;
};

constexpr std::array kArchitectures = {
    Architecture{"LlamaForCausalLM", "llama", DeclareLlama, true},
    Architecture{"Qwen3ForCausalLM", "qwen3", DeclareQwen3, true},
    Architecture{"Qwen3MoeForCausalLM", "qwen3_moe", DeclareQwen3Moe, true},
    Architecture{"Lfm2MoeForCausalLM", "lfm2_moe", DeclareLfm2Moe},
    Architecture{"Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", DeclareQwen25Vl, true},
    Architecture{"Qwen3VLForConditionalGeneration", "qwen3_vl", DeclareQwen3Vl, true},
};

/// "a, b, c" of one column of the table.
std::string Column(const char* Architecture::*column) {
  std::string list;
  for (const Architecture& known : kArchitectures) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", known.*column);
  }
  return list;
}

const Architecture* FindBy(const char* Architecture::*column, std::string_view name) {
  for (const Architecture& known : kArchitectures) {
    if (name == known.*column) return &known;
  }
  return nullptr;
}

Result<const Architecture*> ReadArchitecture(const Fields& fields) {
  simdjson::dom::array names;
  const auto value = fields.Find("architectures");
  if (value && value->get_array().get(names)) {
    return fields.Wrong("architectures", "an array of strings", *value);
  }
  if (value && names.size() > 0) {
    const JsonElement first = names.at(0).value();
    SP_ASSIGN(const std::string_view name, AsString(fields.where(), "architectures[0]", first));
    if (const Architecture* known = FindBy(&Architecture::name, name)) return known;
    return fields.Wrong("architectures[0]", "one of " + Column(&Architecture::name), first);
  }
  const auto type = fields.Find("model_type");
  if (!type) return fields.Missing("architectures", "one of " + Column(&Architecture::name));
  SP_ASSIGN(const std::string_view name, AsString(fields.where(), "model_type", *type));
  if (const Architecture* known = FindBy(&Architecture::model_type, name)) return known;
  return fields.Wrong("model_type",
                      "one of " + Column(&Architecture::model_type) + " (architectures is absent)",
                      *type);
}

}  // namespace

Result<DeclaredModel> DeclareModel(const Case& test_case) {
  const std::string& checkpoint = test_case.model.checkpoint;
  if (checkpoint.empty()) {
    return DeclaredModel{test_case.model.tensors, test_case.model.ties, 0.02 * std::sqrt(3.0)};
  }
  if (!test_case.model.factory.empty()) {
    return BadInput(fmt::format("model {}: only what it returns says which tensors it has",
                                Printable(test_case.model.factory)));
  }
  const std::string path = checkpoint + "/config.json";
  SP_ASSIGN(const std::string text, ReadWholeFile(path, kConfigBytesMax));
  return DeclareConfig(test_case, text, path);
}

Result<DeclaredModel> DeclareConfig(const Case& test_case, const std::string& text,
                                    const std::string& path) {
  simdjson::dom::parser parser;
  SP_ASSIGN(const simdjson::dom::object root, ParseObject(parser, path, text));
  SP_ASSIGN(const Fields fields, Fields::Of(Printable(path), root));
  SP_ASSIGN(const Architecture* architecture, ReadArchitecture(fields));
  if (!architecture->reads_quantised) SP_TRY(QuantisedConfig::Read(fields, {}));
  SP_ASSIGN(DeclaredModel model, architecture->declare(fields));
  return Adapt(std::move(model), test_case.model);
}

}  // namespace shardproof::oracle
