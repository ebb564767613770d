#include "verify/oracle/quantised_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "verify/oracle/decoder_config.h"
#include "verify/oracle/quote.h"

namespace shardproof::oracle {
namespace {

constexpr size_t kNamesMax = 1 << 16;
constexpr const char* kNameBytes =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";

/// Reads an object field by field: what must be so, then that nothing else is there. Remembers the
/// first thing that is wrong.
class Strict {
 public:
  explicit Strict(const Fields& fields) : fields_(fields) {}

  Strict& Text(const std::string& name, std::string_view expected) {
    return Is(name, fmt::format("'{}'", expected), [&](const JsonElement& value) {
      std::string_view text;
      return !value.get_string().get(text) && text == expected;
    });
  }
  Strict& Bool(const std::string& name, bool expected) {
    return Is(name, expected ? "true" : "false", [&](const JsonElement& value) {
      bool flag = false;
      return !value.get_bool().get(flag) && flag == expected;
    });
  }
  Strict& Number(const std::string& name, int64_t expected) {
    return Is(name, fmt::format("{}", expected), [&](const JsonElement& value) {
      int64_t number = 0;
      return !value.get_int64().get(number) && number == expected;
    });
  }
  Strict& Nothing(const std::string& name) {
    return Is(name, "none", [](const JsonElement&) { return false; });
  }
  Strict& Empty(const std::string& name) {
    return Is(name, "an empty object or none", [](const JsonElement& value) {
      simdjson::dom::object object;
      return !value.get_object().get(object) && object.size() == 0;
    });
  }
  /// Read elsewhere, or of no consequence for any tensor.
  Strict& Any(const std::string& name) {
    return Is(name, "", [](const JsonElement&) { return true; });
  }
  /// The field named last has no default that would do.
  Strict& Required() {
    if (!wrong_ && !fields_.Has(last_)) wrong_ = fields_.Missing(last_, expected_);
    return *this;
  }

  Status Done() {
    if (wrong_) return *wrong_;
    for (const JsonMember& member : fields_.members()) {
      if (member.value.is_null() || known_.contains(std::string(member.key))) continue;
      return BadInput(fmt::format("{}: {}: expected no field that is not known, found {}",
                                  fields_.where(), Printable(member.key), Describe(member.value)));
    }
    return Unit{};
  }

 private:
  template <typename Test>
  Strict& Is(const std::string& name, const std::string& expected, const Test& test) {
    known_.insert(name);
    last_ = name;
    expected_ = expected;
    const auto value = fields_.Find(name);
    if (!wrong_ && value && !test(*value)) wrong_ = fields_.Wrong(name, expected, *value);
    return *this;
  }

  const Fields& fields_;
  std::set<std::string> known_;
  std::string last_;
  std::string expected_;
  std::optional<Error> wrong_;
};

/// Of plain names only: what would be a pattern or a class of modules is refused.
Result<std::vector<std::string>> ReadNames(const Fields& fields, const std::string& list) {
  SP_ASSIGN(std::vector<std::string> names, fields.Texts(list, kNamesMax));
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    if (name.find_first_not_of(kNameBytes) == std::string::npos && name != "Linear" &&
        name != "Module") {
      continue;
    }
    return BadInput(fmt::format("{}: {}[{}]: expected the name of a module, found {}",
                                fields.where(), list, i, Quote(name)));
  }
  return names;
}

/// Whether `name`, a dot standing for any byte, is `text`.
bool Fits(std::string_view name, std::string_view text) {
  return std::equal(name.begin(), name.end(), text.begin(), text.end(),
                    [](char wanted, char found) { return wanted == '.' || wanted == found; });
}

/// As Transformers looks for a name in modules_to_not_convert: a regular expression that fits a
/// module or one that it is in (with the dot after it or without), or the last letters of the
/// module.
bool IsUnder(std::string_view name, std::string_view module) {
  if (module.ends_with(name)) return true;
  for (size_t dot = module.find('.'); dot != std::string_view::npos;
       dot = module.find('.', dot + 1)) {
    if (Fits(name, module.substr(0, dot)) || Fits(name, module.substr(0, dot + 1))) return true;
  }
  return Fits(name, module);
}

/// One set of arguments of compressed-tensors: of weights or of activations.
Status CheckArguments(const Fields& group, const std::string& name, const char* strategy,
                      bool dynamic) {
  if (!group.Has(name)) return group.Missing(name, "an object");
  SP_ASSIGN(const Fields fields, group.Object(name));
  Strict strict(fields);
  strict.Number("num_bits", 8).Text("type", "int").Bool("symmetric", true);
  strict.Text("strategy", strategy).Required().Bool("dynamic", dynamic);
  if (dynamic) strict.Required();
  strict.Nothing("group_size").Nothing("block_structure").Nothing("actorder");
  strict.Nothing("scale_dtype").Any("zp_dtype").Any("observer").Any("observer_kwargs");
  return strict.Done();
}

Status CheckTargets(const Fields& group) {
  SP_ASSIGN(const std::vector<std::string> targets, group.Texts("targets", kNamesMax));
  if (targets.size() == 1 && targets[0] == "Linear") return Unit{};
  if (!group.Has("targets")) return group.Missing("targets", "['Linear']");
  return BadInput(fmt::format("{}: targets: expected ['Linear'], found {} names: {}", group.where(),
                              targets.size(), Quote(fmt::format("{}", fmt::join(targets, ", ")))));
}

Status CheckGroup(const Fields& group) {
  SP_TRY(CheckTargets(group));
  Strict strict(group);
  strict.Any("targets").Any("weights").Any("input_activations").Nothing("output_activations");
  SP_TRY(strict.Text("format", "int-quantized").Done());
  SP_TRY(CheckArguments(group, "weights", "channel", false));
  return CheckArguments(group, "input_activations", "token", true);
}

/// Two integers, which is other than null: that would be one scale for a whole weight.
Status ReadBlock(const Fields& fields, QuantisedWeight& weight) {
  const std::string name = "weight_block_size";
  if (fields.IsNull(name)) {
    return BadInput(fmt::format("{}: {}: expected two integers from 1 to {}, found null",
                                fields.where(), name, kSizeMax));
  }
  weight.block_height = 128;
  weight.block_width = 128;
  if (!fields.Has(name)) return Unit{};
  SP_ASSIGN(const std::vector<int64_t> sides, fields.Integers(name, 1, kSizeMax, 2));
  if (sides.size() != 2) {
    return fields.Wrong(name, "two integers", static_cast<int64_t>(sides.size()));
  }
  weight.block_height = sides[0];
  weight.block_width = sides[1];
  return Unit{};
}

}  // namespace

std::vector<int64_t> QuantisedWeight::ScaleShape(std::vector<int64_t> shape) const {
  int64_t& height = shape.at(shape.size() - 2);
  height = (height - 1) / block_height + 1;
  shape.back() = block_width == 0 ? 1 : (shape.back() - 1) / block_width + 1;
  return shape;
}

Status QuantisedConfig::ReadBlockFp8(const Fields& fields) {
  weight_ = {.dtype = "F8_E4M3", .scale_ending = "_scale_inv", .scale_dtype = "F32"};
  SP_TRY(ReadBlock(fields, weight_));
  // A config that is silent keeps the output layer; one that lists others, and not that, does not.
  kept_ = {"lm_head"};
  if (fields.Has("modules_to_not_convert")) {
    SP_ASSIGN(kept_, ReadNames(fields, "modules_to_not_convert"));
  }
  SP_ASSIGN(const std::vector<std::string> more, fields.Texts("modules_to_convert", kNamesMax));
  if (!more.empty()) {
    return fields.Wrong("modules_to_convert", "none", *fields.Find("modules_to_convert"));
  }
  Strict strict(fields);
  strict.Any("quant_method").Any("weight_block_size").Any("modules_to_not_convert");
  strict.Any("modules_to_convert").Text("activation_scheme", "dynamic").Bool("dequantize", false);
  strict.Text("scale_fmt", "float").Text("expert_dtype", "fp8");
  // Transformers does not read it, but others write it.
  SP_ASSIGN(const std::string format, fields.Text("fmt", "e4m3"));
  strict.Text("fmt", format == "float8_e4m3fn" ? format : "e4m3");
  return strict.Done();
}

Status QuantisedConfig::ReadCompressedTensors(const Fields& fields) {
  weight_ = {.dtype = "I8", .scale_ending = "_scale", .requires_grad = false};
  Strict strict(fields);
  strict.Any("quant_method").Any("version").Any("global_compression_ratio").Any("ignore");
  strict.Text("format", "int-quantized").Required();
  strict.Text("quantization_status", "compressed").Required();
  strict.Nothing("kv_cache_scheme").Nothing("moe_sparsity_config");
  strict.Empty("sparsity_config").Empty("transform_config").Bool("run_compressed", true);
  strict.Bool("dequantize", false).Bool("use_optimized_inference", false).Any("config_groups");
  SP_TRY(strict.Done());
  SP_ASSIGN(kept_, ReadNames(fields, "ignore"));
  if (!fields.Has("config_groups"))
    return fields.Missing("config_groups", "an object of one group");
  SP_ASSIGN(const Fields groups, fields.Object("config_groups"));
  if (groups.members().size() != 1) {
    return fields.Wrong("config_groups", "one group",
                        static_cast<int64_t>(groups.members().size()));
  }
  const JsonMember& only = groups.members()[0];
  simdjson::dom::object object;
  if (only.value.get_object().get(object)) {
    return groups.Wrong(Printable(only.key), "an object", only.value);
  }
  SP_ASSIGN(const Fields group, Fields::Of(groups.where() + ": " + Printable(only.key), object));
  return CheckGroup(group);
}

Result<QuantisedConfig> QuantisedConfig::Read(const Fields& config,
                                              const std::vector<std::string_view>& methods) {
  QuantisedConfig quantised;
  const auto value = config.Find("quantization_config");
  if (!value) return quantised;
  if (methods.empty()) {
    return config.Wrong("quantization_config",
                        "none: quantised weights of this architecture are not known", *value);
  }
  SP_ASSIGN(const Fields fields, config.Object("quantization_config"));
  const std::string expected = fmt::format("{} for this architecture", fmt::join(methods, " or "));
  const auto named = fields.Find("quant_method");
  if (!named) return fields.Missing("quant_method", expected);
  SP_ASSIGN(const std::string method, fields.Text("quant_method", ""));
  if (std::find(methods.begin(), methods.end(), method) == methods.end()) {
    return fields.Wrong("quant_method", expected, *named);
  }
  if (method == kBlockFp8) {
    quantised.method_ = Method::kBlockFp8;
    SP_TRY(quantised.ReadBlockFp8(fields));
  } else {
    quantised.method_ = Method::kCompressedTensors;
    SP_TRY(quantised.ReadCompressedTensors(fields));
  }
  return quantised;
}

bool QuantisedConfig::Has(std::string_view module) const {
  if (method_ == Method::kNone) return false;
  return std::none_of(kept_.begin(), kept_.end(), [&](const std::string& name) {
    return method_ == Method::kBlockFp8 ? IsUnder(name, module) : name == module;
  });
}

void QuantisedConfig::RenameKept(std::string (*model_name)(const std::string& name)) {
  for (std::string& name : kept_) name = model_name(name);
}

const char* QuantisedConfig::ListOfKept() const {
  return method_ == Method::kBlockFp8 ? "modules_to_not_convert" : "ignore";
}

}  // namespace shardproof::oracle
