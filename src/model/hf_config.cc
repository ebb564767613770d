// A Hugging Face config.json becomes a ModelSpec.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>

#include "src/core/strict_json.h"
#include "src/model/hf_models.h"
#include "src/model/hf_quantised.h"

namespace shardproof {
namespace {

struct Architecture {
  const char* name;        ///< as in `architectures`
  const char* model_type;  ///< as in `model_type`, for configs that name no architecture
  DescribeArchitecture describe;
  std::array<const char*, 2> quantised = {};  ///< the quant_methods that are known for it
};

constexpr std::array kArchitectures = {
    Architecture{"LlamaForCausalLM", "llama", DescribeLlama, {kMethodFp8, kMethodCompressed}},
    Architecture{"Qwen3ForCausalLM", "qwen3", DescribeQwen3, {kMethodFp8, kMethodCompressed}},
    Architecture{"Qwen3MoeForCausalLM", "qwen3_moe", DescribeQwen3Moe, {kMethodFp8}},
    Architecture{"Lfm2MoeForCausalLM", "lfm2_moe", DescribeLfm2Moe},
    Architecture{
        "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl", DescribeQwen25Vl, {kMethodFp8}},
    Architecture{"Qwen3VLForConditionalGeneration", "qwen3_vl", DescribeQwen3Vl, {kMethodFp8}},
};

std::string KnownArchitectures() {
  std::string text;
  for (const Architecture& one : kArchitectures) {
    text += (text.empty() ? "" : ", ") + std::string(one.name);
  }
  return text;
}

/// The name that a config gives, by `architectures` or by its model type.
Result<std::string> NameOf(const Fields& config) {
  if (config.Has("architectures")) {
    SP_ASSIGN(const auto names, config.Texts("architectures"));
    if (!names.empty()) return names[0];
  }
  SP_ASSIGN(const std::string type, config.Text("model_type", ""));
  if (type.empty()) {
    return BadInput(
        fmt::format("{}: fields 'architectures' and 'model_type' are missing: expected "
                    "one that names the architecture",
                    config.origin()));
  }
  for (const Architecture& one : kArchitectures) {
    if (type == one.model_type) return std::string(one.name);
  }
  return type;
}

/// Whether it is known what becomes of the architecture's tensors if the config quantises them.
Status CheckQuantMethod(const Fields& config, const Architecture& architecture) {
  if (!config.Has("quantization_config")) return Ok();
  SP_ASSIGN(const std::string method, QuantMethod(config));
  std::string known;
  for (const char* one : architecture.quantised) {
    if (one == nullptr) continue;
    if (method == one) return Ok();
    known += (known.empty() ? "" : " or ") + std::string(one);
  }
  if (known.empty()) known = "no quantization_config";
  return BadInput(
      fmt::format("{}: field 'quantization_config' has quant_method {}: expected {} for {}",
                  config.origin(), ShownText(method), known, architecture.name));
}

/// Sizes that are each possible can make a tensor that is not.
Result<ModelSpec> WithinBounds(ModelSpec spec, const std::string& origin) {
  constexpr double kElementsMax = 0x1p56;
  for (const TensorSpec& tensor : spec.tensors) {
    double elements = 1;
    for (const int64_t size : tensor.shape) elements *= static_cast<double>(size);
    if (elements <= kElementsMax) continue;
    return BadInput(
        fmt::format("{}: tensor '{}' would have shape [{}]: expected at most 2^56 "
                    "elements",
                    origin, tensor.name, fmt::join(tensor.shape, ", ")));
  }
  return spec;
}

}  // namespace

Result<ModelSpec> SpecFromConfig(const std::string& text, const std::string& origin) {
  SP_ASSIGN(const nlohmann::json document, ParseStrictObject(text, origin));
  const Fields config(document, origin);
  SP_ASSIGN(const std::string name, NameOf(config));
  for (const Architecture& one : kArchitectures) {
    if (name != one.name) continue;
    SP_TRY(CheckQuantMethod(config, one));
    SP_ASSIGN(ModelSpec spec, one.describe(config));
    return WithinBounds(std::move(spec), origin);
  }
  return BadInput(fmt::format("{}: architecture {} is unknown: known are {}", origin,
                              ShownText(name), KnownArchitectures()));
}

}  // namespace shardproof
