#include "verify/quantised/quantisation.h"

#include <fnmatch.h>

#include <algorithm>
#include <initializer_list>

#include "verify/oracle/json.h"

namespace shardproof {
namespace {

using oracle::JsonElement;

constexpr uint64_t kConfigBytesMax = 64u << 20;

std::string TextAt(const JsonElement& object, std::string_view field) {
  std::string_view text;
  return object[field].get(text) ? "" : std::string(text);
}

int64_t NumberAt(const JsonElement& object, std::string_view field, int64_t otherwise) {
  int64_t number = 0;
  return object[field].get(number) ? otherwise : number;
}

bool FlagAt(const JsonElement& object, std::string_view field, bool otherwise) {
  bool flag = false;
  return object[field].get(flag) ? otherwise : flag;
}

void AddPatterns(const JsonElement& object, std::string_view field,
                 std::vector<ModulePattern>& patterns) {
  simdjson::dom::array array;
  if (object[field].get(array)) return;
  for (const JsonElement& each : array) {
    std::string_view text;
    if (!each.get(text)) patterns.emplace_back(text);
  }
}

std::vector<int64_t> NumbersAt(const JsonElement& object, std::string_view field) {
  std::vector<int64_t> numbers;
  simdjson::dom::array array;
  if (object[field].get(array)) return numbers;
  for (const JsonElement& each : array) {
    int64_t number = 0;
    if (!each.get(number)) numbers.push_back(number);
  }
  return numbers;
}

void SetBlock(const std::vector<int64_t>& sides, QuantisationScheme& scheme) {
  if (sides.size() != 2 || sides[0] < 1 || sides[1] < 1) return;
  scheme.strategy = "block";
  scheme.block_height = sides[0];
  scheme.block_width = sides[1];
}

Dialect PackedDialect(const std::string& format) {
  if (format == "pack-quantized") return Dialect::kPackedWords;
  if (format == "nvfp4-pack-quantized") return Dialect::kPackedNvfp4;
  if (format == "mxfp4-pack-quantized" || format == "mxfp6-pack-quantized")
    return Dialect::kPackedMx;
  if (format == "float-quantized" || format == "int-quantized" || format == "naive-quantized" ||
      format == "mxfp8-quantized")
    return Dialect::kPlainCodes;
  return Dialect::kUnknown;
}

/// "Linear" and other classes stand for all modules of which nothing else is said.
bool IsClass(const ModulePattern& target) {
  const std::string& text = target.text();
  return text.find_first_of(".*:") == std::string::npos && !text.empty() &&
         std::isupper(static_cast<unsigned char>(text[0])) != 0;
}

void ReadCompressed(const JsonElement& config, Quantisation& out) {
  AddPatterns(config, "ignore", out.kept);
  out.keeps_only_named = true;  // as compressed-tensors matches names
  simdjson::dom::object groups;
  if (config["config_groups"].get(groups)) return;
  for (const auto& [name, group] : groups) {
    JsonElement weights;
    if (group["weights"].get(weights) || weights.is_null()) continue;
    std::string format = TextAt(group, "format");
    if (format.empty()) format = TextAt(config, "format");
    QuantisationScheme scheme;
    scheme.dialect = PackedDialect(format);
    scheme.bits = NumberAt(weights, "num_bits", 8);
    scheme.strategy = TextAt(weights, "strategy");
    scheme.group = NumberAt(weights, "group_size", 0);
    scheme.symmetric = FlagAt(weights, "symmetric", true);
    scheme.has_exponents = TextAt(weights, "scale_dtype") == "torch.uint8";
    SetBlock(NumbersAt(weights, "block_structure"), scheme);
    AddPatterns(group, "targets", scheme.targets);
    if (std::any_of(scheme.targets.begin(), scheme.targets.end(), IsClass)) scheme.targets.clear();
    out.schemes.push_back(std::move(scheme));
  }
  // What names modules comes before what means all others.
  std::stable_partition(out.schemes.begin(), out.schemes.end(),
                        [](const QuantisationScheme& each) { return !each.targets.empty(); });
}

QuantisationScheme ModelOptScheme(const JsonElement& fields) {
  QuantisationScheme scheme;
  const std::string algorithm = TextAt(fields, "quant_algo");
  scheme.group = NumberAt(fields, "group_size", 16);
  if (algorithm == "FP8") scheme.dialect = Dialect::kModelOptFp8;
  if (algorithm == "NVFP4") scheme.dialect = Dialect::kModelOptNvfp4;
  return scheme;
}

/// config: quantization_config, or what hf_quant_config.json has as `quantization`.
void ReadModelOpt(const JsonElement& config, Quantisation& out) {
  for (const char* field : {"ignore", "exclude_modules"}) AddPatterns(config, field, out.kept);
  simdjson::dom::object layers;
  if (TextAt(config, "quant_algo") != "MIXED_PRECISION") {
    out.schemes.push_back(ModelOptScheme(config));
  } else if (!config["quantized_layers"].get(layers)) {
    for (const auto& [name, layer] : layers) {
      QuantisationScheme scheme = ModelOptScheme(layer);
      scheme.targets.emplace_back(name);
      out.schemes.push_back(std::move(scheme));
    }
  }
}

/// Of methods that quantise all of their modules alike.
QuantisationScheme SchemeByMethod(const JsonElement& config, const std::string& method) {
  QuantisationScheme scheme;
  if (method == "fp8") {
    scheme.dialect = Dialect::kBlockFp8;
    if (config["weight_block_size"].error() == simdjson::NO_SUCH_FIELD)
      SetBlock({128, 128}, scheme);
    SetBlock(NumbersAt(config, "weight_block_size"), scheme);
  } else if (method == "fbgemm_fp8") {
    scheme.dialect = Dialect::kRowFp8;
    scheme.strategy = "channel";
  } else if (method == "mxfp4") {
    scheme.dialect = Dialect::kMxfp4;
  } else if (method == "awq" || method == "gptq") {
    const bool is_awq = method == "awq";
    // AWQ's other layouts (GEMV) and GPTQ's second format have names of their own.
    const std::string layout = TextAt(config, is_awq ? "version" : "checkpoint_format");
    const bool is_known = layout.empty() || layout == "gemm" || layout == "GEMM" ||
                          layout == "gptq" || layout == "gptq_v2";
    if (is_known) scheme.dialect = is_awq ? Dialect::kAwq : Dialect::kGptq;
    scheme.bits = NumberAt(config, is_awq && config["bits"].error() ? "w_bit" : "bits", 4);
    scheme.group = std::max<int64_t>(
        NumberAt(config, is_awq && config["group_size"].error() ? "q_group_size" : "group_size",
                 128),
        0);
    scheme.symmetric = is_awq && !FlagAt(config, "zero_point", true);
    scheme.zeros_less_one = !is_awq && layout != "gptq_v2";
  } else if (method == "bitsandbytes") {
    scheme.dialect =
        FlagAt(config, "load_in_8bit", false) ? Dialect::kBitsAndBytes8 : Dialect::kBitsAndBytes4;
  } else if (method == "torchao") {
    scheme.dialect = Dialect::kTorchAo;
  }
  return scheme;
}

void ReadFields(const JsonElement& config, const std::string& otherwise, Quantisation& out) {
  std::string method = TextAt(config, "quant_method");
  if (method.empty()) method = config["quant_algo"].error() ? otherwise : "modelopt";
  out.method = method;
  for (const char* field :
       {"modules_to_not_convert", "llm_int8_skip_modules", "modules_to_not_quantize"}) {
    AddPatterns(config, field, out.kept);
  }
  if (method == "compressed-tensors") {
    ReadCompressed(config, out);
  } else if (method.starts_with("modelopt")) {
    ReadModelOpt(config, out);
  } else {
    out.schemes.push_back(SchemeByMethod(config, method));
  }
}

/// Nothing of what is none.
std::optional<Pattern> Compiled(const std::string& regex) {
  auto pattern = Pattern::Of(regex);
  return pattern.ok() ? std::optional(std::move(pattern).value()) : std::nullopt;
}

bool FitsAll(const std::optional<Pattern>& pattern, std::string_view module) {
  if (!pattern) return false;
  const auto fits = pattern->Fits(module);
  return fits.ok() && fits.value();
}

/// Whether `name`, whole components of a dotted name, is the module or one that it is in.
bool IsPartOf(std::string_view name, std::string_view module) {
  if (name.empty()) return false;
  const std::string within = "." + std::string(module) + ".";
  return within.find("." + std::string(name) + ".") != std::string::npos;
}

bool FitsName(const std::string& pattern, std::string_view module) {
  if (pattern.find_first_of("*?") == std::string::npos) return IsPartOf(pattern, module);
  return fnmatch(pattern.c_str(), std::string(module).c_str(), 0) == 0;
}

}  // namespace

ModulePattern::ModulePattern(std::string_view text) : text_(text) {
  if (!IsRegex()) return;
  const std::string any = "[\\s\\S]*";
  const std::string regex = "(?:" + text_.substr(3) + ")" + any;
  at_begin_ = Compiled(regex);
  anywhere_ = Compiled(any + regex);
}

bool ModulePattern::Fits(std::string_view module) const {
  return IsRegex() ? FitsAll(at_begin_, module) : FitsName(text_, module);
}

bool ModulePattern::MayFit(std::string_view module) const {
  if (Fits(module)) return true;
  if (IsRegex()) return FitsAll(anywhere_, module);
  std::string rest = text_;
  for (size_t dot = rest.find('.'); dot != std::string::npos; dot = rest.find('.')) {
    rest = rest.substr(dot + 1);
    if (rest.find('.') == std::string::npos) break;  // one component means too much
    if (FitsName(rest, module) || FitsName("*" + rest, module)) return true;
  }
  return false;
}

const QuantisationScheme* Quantisation::SchemeOf(std::string_view module) const {
  for (const QuantisationScheme& scheme : schemes) {
    const bool is_target =
        scheme.targets.empty() ||
        std::any_of(scheme.targets.begin(), scheme.targets.end(),
                    [&](const ModulePattern& target) { return target.Fits(module); });
    if (is_target) return &scheme;
  }
  return nullptr;
}

bool Quantisation::Keeps(std::string_view module) const {
  return std::any_of(kept.begin(), kept.end(), [&](const ModulePattern& pattern) {
    return keeps_only_named ? pattern.Names(module) : pattern.Fits(module);
  });
}

bool Quantisation::MayKeep(std::string_view module) const {
  return std::any_of(kept.begin(), kept.end(),
                     [&](const ModulePattern& pattern) { return pattern.MayFit(module); });
}

Quantisation ReadQuantisation(const std::string& directory) {
  using Fields = std::vector<std::string_view>;
  struct Place {
    const char* file;
    std::vector<Fields> ways;  ///< from the root to what says so
    const char* method = "";   ///< where no field says which
  };
  const std::initializer_list<Place> places = {
      {"config.json",
       {{"quantization_config"}, {"compression_config"}, {"text_config", "quantization_config"}}},
      {"hf_quant_config.json", {{"quantization"}}},
      {"quantize_config.json", {{}}, "gptq"},
  };
  for (const Place& place : places) {
    simdjson::dom::parser parser;
    const auto root = oracle::FindJson(parser, directory + "/" + place.file, kConfigBytesMax);
    if (!root) continue;
    for (const Fields& way : place.ways) {
      JsonElement element = *root;
      bool found = element.is_object();
      for (const std::string_view field : way) {
        found = found && !element[field].get(element) && element.is_object();
      }
      if (!found) continue;
      Quantisation out;
      out.file = place.file;
      ReadFields(element, place.method, out);
      return out;
    }
  }
  return {};
}

}  // namespace shardproof
