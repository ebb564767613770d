// What PEFT's adapter_config.json says of a LoRA adapter, read and written.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "src/core/strict_json.h"
#include "src/model/hf_fields.h"
#include "src/model/lora.h"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr int64_t kRankMax = 1 << 16;
constexpr size_t kRanksMax = 256;

/// Fields that decide about no tensor's name, shape or dtype, whatever they say.
constexpr std::array kOfNoTensor = {
    "task_type",         "auto_mapping",        "peft_version",  "base_model_name_or_path",
    "revision",          "lora_alpha",          "lora_dropout",  "inference_mode",
    "use_rslora",        "alpha_pattern",       "loftq_config",  "eva_config",
    "init_lora_weights", "corda_config",        "megatron_core", "lora_ga_config",
    "qalora_group_size", "ensure_weight_tying", "fan_in_fan_out"};
constexpr std::array kRead = {"peft_type",        "r",    "target_modules",  "exclude_modules",
                              "rank_pattern",     "bias", "modules_to_save", "use_dora",
                              "target_parameters"};

bool SaysNothing(const json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

Result<Pattern> PatternOf(const std::string& text, const Fields& config, const char* field) {
  Result<Pattern> pattern = Pattern::Of(text);
  if (pattern.ok()) return pattern;
  return BadInput(fmt::format("{}: field '{}' has {}: {}", config.origin(), field, ShownText(text),
                              pattern.error().message));
}

/// PEFT looks at no case here.
bool IsAllLinear(const json& value) {
  if (!value.is_string()) return false;
  std::string text = value.get<std::string>();
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text == kAllLinear;
}

/// A list of names, or one pattern. None if the field is absent.
Result<ModuleChoice> Choice(const Fields& config, const char* field) {
  ModuleChoice choice;
  if (!config.Has(field)) return choice;
  const json& value = config[field];
  if (IsAllLinear(value)) {
    choice.names = {kAllLinear};
  } else if (value.is_string()) {
    SP_ASSIGN(choice.pattern, PatternOf(value.get<std::string>(), config, field));
  } else {
    SP_ASSIGN(choice.names, config.Texts(field));
  }
  return choice;
}

Result<ModuleChoice> Targets(const Fields& config) {
  if (config.Has("target_modules") || config.Has("target_parameters")) {
    return Choice(config, "target_modules");
  }
  return config.Missing("target_modules", "names of modules, a pattern, or all-linear");
}

/// PEFT takes what is before a rank for a pattern that a whole name or its end from a dot on fits;
/// the first in the file that does decides. \param text  the file's, which `config` is of and which
/// has their order.
Result<std::vector<std::pair<Pattern, int64_t>>> Ranks(const Fields& config,
                                                       const std::string& text) {
  std::vector<std::pair<Pattern, int64_t>> ranks;
  if (!config.Has("rank_pattern")) return ranks;
  SP_ASSIGN(const Fields pattern, config.Object("rank_pattern"));
  if (pattern.object().size() > kRanksMax) {
    return BadInput(fmt::format("{}: field 'rank_pattern' has {} patterns: expected at most {}",
                                config.origin(), pattern.object().size(), kRanksMax));
  }
  const auto in_order = nlohmann::ordered_json::parse(text);
  for (const auto& [name, value] : in_order["rank_pattern"].items()) {
    SP_TRY(PatternOf(name, config, "rank_pattern"));  // as it is written, for the message
    SP_ASSIGN(Pattern ends, PatternOf(fmt::format(R"((.*\.)?({}))", name), config, "rank_pattern"));
    SP_ASSIGN(const int64_t rank, pattern.Count(name.c_str(), {}, kRankMax));
    ranks.emplace_back(std::move(ends), rank);
  }
  return ranks;
}

/// Modules that are trained whole. PEFT takes them for the ends of names and for patterns in turn.
Result<std::vector<std::string>> Saved(const Fields& config) {
  std::vector<std::string> saved;
  if (!config.Has("modules_to_save")) return saved;
  SP_ASSIGN(saved, config.Texts("modules_to_save"));
  for (const std::string& name : saved) {
    const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return c == '.' || c == '_' || (c < 0x80 && std::isalnum(c));
    });
    if (plain && !name.empty()) continue;
    return BadInput(fmt::format("{}: field 'modules_to_save' has {}: expected names of modules",
                                config.origin(), ShownText(name)));
  }
  return saved;
}

}  // namespace

Result<LoraSpec> LoraFromConfig(const std::string& text, const std::string& origin) {
  SP_ASSIGN(const json document, ParseStrictObject(text, origin));
  const Fields config(document, origin);
  SP_ASSIGN(const std::string type, config.Text("peft_type", ""));
  if (type != "LORA") {
    return BadInput(
        fmt::format("{}: field 'peft_type' is {}: expected LORA", origin, ShownText(type)));
  }
  SP_ASSIGN(const std::string bias, config.Text("bias", "none"));
  if (bias != "none") return config.Wrong("bias", "none");
  for (const auto& [name, value] : document.items()) {
    const auto is_name = [&name = name](const char* one) { return name == one; };
    if (SaysNothing(value) || std::any_of(kOfNoTensor.begin(), kOfNoTensor.end(), is_name) ||
        std::any_of(kRead.begin(), kRead.end(), is_name)) {
      continue;
    }
    return BadInput(
        fmt::format("{}: field {} is {}: expected none, as it may mean other tensors than "
                    "A and B",
                    origin, ShownText(name), Shown(value)));
  }
  LoraSpec lora;
  SP_ASSIGN(lora.rank, config.Count("r", 8, kRankMax));
  SP_ASSIGN(lora.targets, Targets(config));
  SP_ASSIGN(lora.excluded, Choice(config, "exclude_modules"));
  SP_ASSIGN(lora.ranks, Ranks(config, text));
  SP_ASSIGN(lora.saved, Saved(config));
  SP_ASSIGN(lora.magnitudes, config.Flag("use_dora", false));
  if (config.Has("target_parameters")) {
    SP_ASSIGN(lora.experts, config.Texts("target_parameters"));
  }
  if (lora.magnitudes && !lora.experts.empty()) {
    return config.Wrong("use_dora", "false, as there are target_parameters");
  }
  if (config.Has("lora_dropout") && config["lora_dropout"] != 0 && !lora.experts.empty()) {
    return config.Wrong("lora_dropout", "0, as there are target_parameters");
  }
  return lora;
}

std::string LoraToConfig(const LoraSpec& lora) {
  nlohmann::ordered_json config = {
      {"peft_type", "LORA"}, {"task_type", nullptr},    {"base_model_name_or_path", nullptr},
      {"r", lora.rank},      {"lora_alpha", lora.rank}, {"target_modules", lora.targets.names},
      {"bias", "none"}};
  if (lora.targets.IsAllLinear()) config["target_modules"] = kAllLinear;
  return config.dump(2, ' ', true) + "\n";
}

}  // namespace shardproof
