#include "src/model/hf_quantised.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <limits>
#include <utility>

#include "src/core/strict_json.h"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr const char* kField = "quantization_config";
constexpr const char* kIntQuantized = "int-quantized";
constexpr size_t kKeptMax = 1 << 16;

/// A field that may have one value only. Absent is as good unless it must be there.
struct Fixed {
  const char* name;
  json value;
  bool required = false;
};

Status CheckFixed(const Fields& fields, const Fixed& fixed) {
  if (!fields.Has(fixed.name)) {
    if (fixed.required) return fields.Missing(fixed.name, fixed.value.dump());
    return Ok();
  }
  const json& value = fields[fixed.name];
  // The JSON library takes 8 and 8.0 for equal.
  if (value == fixed.value && value.is_number_float() == fixed.value.is_number_float()) return Ok();
  return fields.Wrong(fixed.name, fixed.value.is_null() ? "none" : fixed.value.dump());
}

/// Every field must be one of `fixed`, with its value, or one of `others`, which are looked at
/// elsewhere or decide about no tensor.
Status CheckFields(const Fields& fields, const std::vector<Fixed>& fixed,
                   std::initializer_list<std::string_view> others) {
  for (const Fixed& one : fixed) SP_TRY(CheckFixed(fields, one));
  for (const auto& [name, value] : fields.object().items()) {
    const auto same = [&name = name](const Fixed& one) { return one.name == name; };
    if (value.is_null() || std::find(others.begin(), others.end(), name) != others.end() ||
        std::any_of(fixed.begin(), fixed.end(), same)) {
      continue;
    }
    return BadInput(
        fmt::format("{}: field {} is unknown: expected none that could mean other tensors",
                    fields.origin(), ShownText(name)));
  }
  return Ok();
}

/// The list of modules that stay as they are.
Result<std::vector<std::string>> KeptModules(const Fields& fields, const char* name) {
  SP_ASSIGN(auto kept, fields.Texts(name));
  if (kept.size() > kKeptMax) {
    return BadInput(fmt::format("{}: field '{}' has {} names: expected at most {}", fields.origin(),
                                name, kept.size(), kKeptMax));
  }
  for (const std::string& one : kept) {
    const bool plain = std::all_of(one.begin(), one.end(), [](unsigned char c) {
      return c < 0x80 && (std::isalnum(c) || c == '_' || c == '.' || c == '-');
    });
    if (plain && one != "Linear" && one != "Module") continue;
    return BadInput(
        fmt::format("{}: field '{}' has {}: expected names of modules, no patterns or "
                    "classes",
                    fields.origin(), name, ShownText(one)));
  }
  return kept;
}

/// Transformers takes a name for a regular expression, whose dots stand for any character, which
/// must match a module's name from its beginning up to a dot; or for a name's end.
bool KeptByPattern(const std::string& pattern, const std::string& module) {
  if (module.ends_with(pattern)) return true;
  if (pattern.empty() || pattern.size() > module.size()) return false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '.' && pattern[i] != module[i]) return false;
  }
  const size_t end = pattern.size();
  return end == module.size() || module[end] == '.' || module[end - 1] == '.';
}

Result<std::pair<int64_t, int64_t>> BlockSize(const Fields& fields) {
  constexpr const char* kName = "weight_block_size";
  if (!fields.object().contains(kName)) return std::pair<int64_t, int64_t>{128, 128};
  const json& size = fields[kName];  // null is a value of its own: one factor for a whole matrix
  const auto fits = [](const json& side) {
    return side.is_number_integer() && side.get<double>() >= 1 &&
           side.get<double>() <= static_cast<double>(kDimMax);
  };
  if (!size.is_array() || size.size() != 2 || !fits(size[0]) || !fits(size[1])) {
    return fields.Wrong(kName, fmt::format("two integers from 1 to {}", kDimMax));
  }
  return std::pair{size[0].get<int64_t>(), size[1].get<int64_t>()};
}

/// \param kept  filled with what the config keeps; lm_head if it does not say.
Result<QuantisedForm> ReadFp8(const Fields& fields, std::vector<std::string>& kept) {
  // What Transformers does not read says so here: published configs name the format.
  if (fields.Has("fmt") && fields["fmt"] != "e4m3" && fields["fmt"] != "float8_e4m3fn") {
    return fields.Wrong("fmt", "e4m3");
  }
  if (fields.Has("modules_to_convert") && fields["modules_to_convert"] != json::array()) {
    return fields.Wrong("modules_to_convert", "none");
  }
  SP_TRY(CheckFields(fields,
                     {{"activation_scheme", "dynamic"},
                      {"dequantize", false},
                      {"scale_fmt", "float"},
                      {"expert_dtype", "fp8"}},
                     {"quant_method", "weight_block_size", "modules_to_not_convert",
                      "modules_to_convert", "fmt"}));
  SP_ASSIGN(const auto block, BlockSize(fields));
  kept = {"lm_head"};
  if (fields.Has("modules_to_not_convert")) {
    SP_ASSIGN(kept, KeptModules(fields, "modules_to_not_convert"));
  }
  return QuantisedForm{.codes = at::kFloat8_e4m3fn,
                       .suffix = "_scale_inv",
                       .factors = at::kFloat,
                       .rows = block.first,
                       .columns = block.second};
}

/// How weights or activations are quantised: 8 bits, symmetric, by `strategy`.
Status CheckScheme(const Fields& group, const char* name, const char* strategy, bool dynamic) {
  SP_ASSIGN(const Fields scheme, group.Object(name));
  return CheckFields(scheme,
                     {{"num_bits", 8},
                      {"type", "int"},
                      {"symmetric", true},
                      {"strategy", strategy, true},
                      {"dynamic", dynamic, dynamic},
                      {"group_size", nullptr},
                      {"block_structure", nullptr},
                      {"actorder", nullptr},
                      {"scale_dtype", nullptr}},
                     {"observer", "observer_kwargs", "zp_dtype"});
}

Status CheckOnlyGroup(const Fields& fields) {
  SP_ASSIGN(const Fields groups, fields.Object("config_groups"));
  if (groups.object().size() != 1 || !groups.object().begin()->is_object()) {
    return fields.Wrong("config_groups", "one object by its name");
  }
  const auto only = groups.object().begin();
  const Fields group(*only, groups.origin() + ": " + ShownText(only.key()));
  SP_TRY(CheckFields(group,
                     {{"targets", json::array({"Linear"}), true},
                      {"output_activations", nullptr},
                      {"format", kIntQuantized}},
                     {"weights", "input_activations"}));
  SP_TRY(CheckScheme(group, "weights", "channel", false));
  return CheckScheme(group, "input_activations", "token", true);
}

Result<QuantisedForm> ReadCompressed(const Fields& fields, std::vector<std::string>& kept) {
  SP_TRY(CheckFields(
      fields,
      {{"format", kIntQuantized, true},
       {"quantization_status", "compressed", true},
       {"kv_cache_scheme", nullptr},
       {"moe_sparsity_config", nullptr},
       {"sparsity_config", json::object()},
       {"transform_config", json::object()},
       {"run_compressed", true},
       {"dequantize", false},
       {"use_optimized_inference", false}},
      {"quant_method", "config_groups", "ignore", "version", "global_compression_ratio"}));
  SP_TRY(CheckOnlyGroup(fields));
  if (fields.Has("ignore")) {
    SP_ASSIGN(kept, KeptModules(fields, "ignore"));
  }
  return QuantisedForm{.codes = at::kChar,
                       .suffix = "_scale",
                       .factors = {},
                       .columns = std::numeric_limits<int64_t>::max(),
                       .trained = false};
}

}  // namespace

std::vector<int64_t> QuantisedForm::FactorShape(std::vector<int64_t> shape) const {
  const auto blocks = [](int64_t size, int64_t side) { return size / side + (size % side != 0); };
  int64_t& out = shape[shape.size() - 2];
  out = blocks(out, rows);
  shape.back() = blocks(shape.back(), columns);
  return shape;
}

const QuantisedForm* Quantisation::Of(const std::string& module) const {
  if (!form_) return nullptr;
  const bool kept = std::any_of(kept_.begin(), kept_.end(), [&](const std::string& one) {
    return kept_exactly_ ? one == module : KeptByPattern(one, module);
  });
  return kept ? nullptr : &*form_;
}

void Quantisation::RenameKept(std::string (*to_model)(const std::string&)) {
  std::transform(kept_.begin(), kept_.end(), kept_.begin(), to_model);
}

Status Quantisation::CheckExperts(const Fields& config, const std::string& module,
                                  int64_t inner) const {
  const QuantisedForm* form = Of(module);
  if (form == nullptr || inner % form->rows == 0) return Ok();
  return BadInput(
      fmt::format("{}: field 'moe_intermediate_size' is {}: expected a multiple of {}, "
                  "the rows of weight_block_size: factors of gate and up are packed",
                  config.origin(), inner, form->rows));
}

Result<std::string> QuantMethod(const Fields& config) {
  SP_ASSIGN(const Fields fields, config.Object(kField));
  if (!fields.Has("quant_method")) return fields.Missing("quant_method", "a string");
  return fields.Text("quant_method", "");
}

Result<Quantisation> QuantisationFromConfig(const Fields& config, bool tied) {
  Quantisation quantisation;
  if (!config.Has(kField)) return quantisation;
  SP_ASSIGN(const std::string method, QuantMethod(config));
  SP_ASSIGN(const Fields fields, config.Object(kField));
  quantisation.kept_exactly_ = method == kMethodCompressed;
  SP_ASSIGN(quantisation.form_, quantisation.kept_exactly_
                                    ? ReadCompressed(fields, quantisation.kept_)
                                    : ReadFp8(fields, quantisation.kept_));
  if (!tied || quantisation.Of("lm_head") == nullptr) return quantisation;
  const char* list = quantisation.kept_exactly_ ? "ignore" : "modules_to_not_convert";
  return BadInput(
      fmt::format("{}: field '{}' does not have lm_head: expected it there, as "
                  "tie_word_embeddings makes it the embeddings",
                  fields.origin(), list));
}

}  // namespace shardproof
