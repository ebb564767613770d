#include "src/model/lora.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/core/strict_json.h"
#include "src/model/hf_fields.h"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr const char* kAllLinear = "all-linear";
constexpr const char* kHead = "lm_head";
constexpr int64_t kRankMax = 1 << 16;

/// Fields that decide about no tensor's name, shape or dtype, whatever they say.
constexpr std::array kOfNoTensor = {
    "task_type",    "auto_mapping", "peft_version",      "base_model_name_or_path", "revision",
    "lora_alpha",   "lora_dropout", "inference_mode",    "use_rslora",              "alpha_pattern",
    "loftq_config", "eva_config",   "init_lora_weights", "corda_config",            "megatron_core",
    "lora_ga_config", "qalora_group_size", "ensure_weight_tying"};
constexpr std::array kRead = {"peft_type", "r", "target_modules", "rank_pattern", "bias"};

bool SaysNothing(const json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

bool EndsAsModule(const std::string& module, const std::string& end) {
  if (module == end) return true;
  return module.size() > end.size() && module.ends_with(end) &&
         module[module.size() - end.size() - 1] == '.';
}

std::string ModuleOf(const std::string& tensor) {
  const size_t dot = tensor.find_last_of('.');
  return dot == std::string::npos ? "" : tensor.substr(0, dot);
}

Result<std::vector<std::string>> Targets(const Fields& config) {
  if (!config.Has("target_modules")) {
    return config.Missing("target_modules", "names of modules, or all-linear");
  }
  if (config["target_modules"] == kAllLinear) return std::vector<std::string>{kAllLinear};
  if (!config["target_modules"].is_array()) {
    return config.Wrong("target_modules", "a list of names of modules, no pattern");
  }
  return config.Texts("target_modules");
}

/// PEFT takes the names for regular expressions.
Result<std::map<std::string, int64_t>> Ranks(const Fields& config) {
  std::map<std::string, int64_t> ranks;
  if (!config.Has("rank_pattern")) return ranks;
  SP_ASSIGN(const Fields pattern, config.Object("rank_pattern"));
  for (const auto& [name, value] : pattern.object().items()) {
    const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return c == '.' || c == '_' || (c < 0x80 && std::isalnum(c));
    });
    if (!plain || name.empty()) {
      return BadInput(fmt::format("{}: field 'rank_pattern' has {}: expected names of modules, no "
                                  "patterns",
                                  config.origin(), ShownText(name)));
    }
    SP_ASSIGN(ranks[name], pattern.Count(name.c_str(), {}, kRankMax));
  }
  return ranks;
}

/// The modules of a model, and which of them are linear layers.
struct Modules {
  std::set<std::string> all;
  std::map<std::string, const TensorSpec*> linear;  ///< by name, its weight

  explicit Modules(const ModelSpec& model) {
    for (const TensorSpec& tensor : model.tensors) {
      if (tensor.linear) linear[ModuleOf(tensor.name)] = &tensor;
      for (std::string m = ModuleOf(tensor.name); !m.empty(); m = ModuleOf(m)) all.insert(m);
    }
  }
};

Result<std::set<std::string>> Chosen(const Modules& modules, const LoraSpec& lora,
                                     const std::string& origin) {
  std::set<std::string> chosen;
  if (lora.targets == std::vector<std::string>{kAllLinear}) {
    for (const auto& [module, weight] : modules.linear) {
      if (module != kHead) chosen.insert(module);
    }
    return chosen;
  }
  for (const std::string& module : modules.all) {
    const auto end = std::find_if(lora.targets.begin(), lora.targets.end(),
                                  [&](const auto& one) { return EndsAsModule(module, one); });
    if (end == lora.targets.end()) continue;
    if (!modules.linear.contains(module)) {
      return BadInput(fmt::format("{}: target {} is the module '{}': expected a linear layer",
                                  origin, ShownText(*end), module));
    }
    chosen.insert(module);
  }
  if (!chosen.empty()) return chosen;
  std::vector<std::string> shown;
  for (const std::string& one : lora.targets) shown.push_back(ShownText(one));
  return BadInput(fmt::format("{}: targets {} are no module of the model", origin,
                              fmt::join(shown, ", ")));
}

Result<int64_t> RankOf(const std::string& module, const LoraSpec& lora, const std::string& origin) {
  std::optional<int64_t> rank;
  for (const auto& [end, own] : lora.ranks) {
    if (!EndsAsModule(module, end)) continue;
    if (rank && *rank != own) {
      return BadInput(fmt::format("{}: module '{}' has ranks {} and {} by rank_pattern: expected one",
                                  origin, module, *rank, own));
    }
    rank = own;
  }
  return rank.value_or(lora.rank);
}

/// Packed experts have parameters for what other models have linear layers for, and what PEFT makes of
/// targets that name these differs by architecture.
Status CheckExperts(const ModelSpec& model, const LoraSpec& lora, const std::string& origin) {
  const bool all = lora.targets == std::vector<std::string>{kAllLinear};
  for (const TensorSpec& tensor : model.tensors) {
    for (const auto& way : tensor.stored) {
      if (way.size() == 1) continue;
      for (const StoredKey& part : way) {
        const std::string module = ModuleOf(part.key);
        const bool named = std::any_of(lora.targets.begin(), lora.targets.end(), [&](const auto& one) {
          return EndsAsModule(module, one);
        });
        if (!all && !named) continue;
        return BadInput(fmt::format("{}: targets have '{}', a projection of an expert: expected linear "
                                    "layers",
                                    origin, module));
      }
    }
  }
  return Ok();
}

Status CheckTarget(const ModelSpec& model, const TensorSpec& weight, const std::string& origin) {
  if (!at::isFloatingType(weight.dtype) || c10::elementSize(weight.dtype) == 1) {
    return BadInput(fmt::format("{}: target '{}' is quantised: adapters are known beside F64, F32, "
                                "BF16 and F16",
                                origin, ModuleOf(weight.name)));
  }
  for (const auto& tie : model.ties) {
    if (std::find(tie.begin(), tie.end(), weight.name) == tie.end()) continue;
    return BadInput(fmt::format("{}: target '{}' is tied to '{}': expected a layer with a weight of "
                                "its own",
                                origin, ModuleOf(weight.name),
                                tie[0] == weight.name ? tie[1] : tie[0]));
  }
  return Ok();
}

TensorSpec Matrix(const std::string& module, const char* side, std::vector<int64_t> shape,
                  InitialValue init) {
  return {.name = fmt::format("{}.lora_{}.default.weight", module, side),
          .shape = shape,
          .init = init,
          .stored = {{{fmt::format("{}{}.lora_{}.weight", kAdapterKeyPrefix, module, side), shape}}},
          .adapter = true};
}

}  // namespace

Result<LoraSpec> LoraFromConfig(const std::string& text, const std::string& origin) {
  SP_ASSIGN(const json document, ParseStrictObject(text, origin));
  const Fields config(document, origin);
  SP_ASSIGN(const std::string type, config.Text("peft_type", ""));
  if (type != "LORA") {
    return BadInput(fmt::format("{}: field 'peft_type' is {}: expected LORA", origin,
                                ShownText(type)));
  }
  SP_ASSIGN(const std::string bias, config.Text("bias", "none"));
  if (bias != "none") return config.Wrong("bias", "none");
  for (const auto& [name, value] : document.items()) {
    const auto is_name = [&name = name](const char* one) { return name == one; };
    if (SaysNothing(value) || std::any_of(kOfNoTensor.begin(), kOfNoTensor.end(), is_name) ||
        std::any_of(kRead.begin(), kRead.end(), is_name)) {
      continue;
    }
    return BadInput(fmt::format("{}: field {} is {}: expected none, as it may mean other tensors than "
                                "A and B",
                                origin, ShownText(name), Shown(value)));
  }
  LoraSpec lora;
  SP_ASSIGN(lora.rank, config.Count("r", 8, kRankMax));
  SP_ASSIGN(lora.targets, Targets(config));
  SP_ASSIGN(lora.ranks, Ranks(config));
  return lora;
}

std::string LoraToConfig(const LoraSpec& lora) {
  nlohmann::ordered_json config = {{"peft_type", "LORA"},
                                   {"task_type", nullptr},
                                   {"base_model_name_or_path", nullptr},
                                   {"r", lora.rank},
                                   {"lora_alpha", lora.rank},
                                   {"rank_pattern", lora.ranks},
                                   {"target_modules", lora.targets},
                                   {"bias", "none"}};
  if (lora.targets == std::vector<std::string>{kAllLinear}) config["target_modules"] = kAllLinear;
  return config.dump(2, ' ', true) + "\n";
}

Result<ModelSpec> WithAdapter(ModelSpec model, const LoraSpec& lora, const std::string& origin) {
  const Modules modules(model);
  SP_TRY(CheckExperts(model, lora, origin));
  SP_ASSIGN(const std::set<std::string> chosen, Chosen(modules, lora, origin));
  std::vector<TensorSpec> adapters;
  for (const std::string& module : chosen) {
    const TensorSpec& weight = *modules.linear.at(module);
    SP_TRY(CheckTarget(model, weight, origin));
    SP_ASSIGN(const int64_t rank, RankOf(module, lora, origin));
    adapters.push_back(Matrix(module, "A", {rank, weight.shape[1]}, InitialValue::kUniform));
    adapters.push_back(Matrix(module, "B", {weight.shape[0], rank}, InitialValue::kZeros));
  }
  for (TensorSpec& tensor : model.tensors) {
    tensor.requires_grad = false;
    const std::string module = ModuleOf(tensor.name);
    if (!chosen.contains(module)) continue;
    tensor.stored.push_back({{tensor.name, tensor.shape}});
    tensor.name = module + ".base_layer" + tensor.name.substr(module.size());
  }
  std::move(adapters.begin(), adapters.end(), std::back_inserter(model.tensors));
  return model;
}

}  // namespace shardproof
