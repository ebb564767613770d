// A Hugging Face config.json becomes a ModelSpec.
#include <cmath>

#include <fmt/format.h>

#include "src/core/dtype.h"
#include "src/core/strict_json.h"
#include "src/model/spec.h"

namespace shardproof {
namespace {

using nlohmann::json;

// Far above any real model, and low enough that no tensor's bytes overflow.
constexpr int64_t kDimMax = 1 << 24;
constexpr int64_t kHeadsMax = 1 << 16;
constexpr int64_t kLayersMax = 4096;
constexpr double kPositiveMax = 1e38;  // what an F32 holds

/// Reads fields of one JSON object, with the file's name in every complaint.
class Fields {
 public:
  Fields(const json& object, std::string origin) : object_(object), origin_(std::move(origin)) {}

  bool Has(const char* name) const { return object_.contains(name) && !object_.at(name).is_null(); }
  const json& operator[](const char* name) const { return object_.at(name); }

  Result<int64_t> Count(const char* name, std::optional<int64_t> fallback = {},
                        int64_t most = kDimMax) const {
    if (!Has(name)) {
      if (fallback) return *fallback;
      return BadInput(fmt::format("{}: field '{}' is missing: expected an integer from 1 to {}",
                                  origin_, name, most));
    }
    const json& value = object_.at(name);
    if (!value.is_number_integer() || value.get<double>() < 1 ||
        value.get<double>() > static_cast<double>(most)) {
      return BadInput(fmt::format("{}: field '{}' is {}: expected an integer from 1 to {}", origin_,
                                  name, Shown(value), most));
    }
    return value.get<int64_t>();
  }

  Result<double> Positive(const char* name, double fallback) const {
    if (!Has(name)) return fallback;
    const json& value = object_.at(name);
    if (!value.is_number() || !(value.get<double>() > 0) || value.get<double>() > kPositiveMax) {
      return BadInput(fmt::format("{}: field '{}' is {}: expected a positive number", origin_, name,
                                  Shown(value)));
    }
    return value.get<double>();
  }

  Result<bool> Flag(const char* name, bool fallback) const {
    if (!Has(name)) return fallback;
    if (!object_.at(name).is_boolean()) {
      return BadInput(fmt::format("{}: field '{}' is {}: expected true or false", origin_, name,
                                  Shown(object_.at(name))));
    }
    return object_.at(name).get<bool>();
  }

  Result<std::string> Text(const char* name, const std::string& fallback) const {
    if (!Has(name)) return fallback;
    if (!object_.at(name).is_string()) {
      return BadInput(fmt::format("{}: field '{}' is {}: expected a string", origin_, name,
                                  Shown(object_.at(name))));
    }
    return object_.at(name).get<std::string>();
  }

  /// Refuses fields that are objects where there should be one set for all.
  Status NoObjects() const {
    for (const auto& [name, value] : object_.items()) {
      if (!value.is_object()) continue;
      return BadInput(fmt::format("{}: field {} is {}: expected one set of values for all layers",
                                  origin_, ShownText(name), Shown(value)));
    }
    return Ok();
  }

  const std::string& origin() const { return origin_; }

 private:
  const json& object_;
  std::string origin_;
};

/// What the two families share; Qwen3 differs by q_norm and k_norm and by its defaults.
struct Decoder {
  bool qk_norm = false;
  bool mlp_bias_allowed = false;
  /// The Transformers library's own defaults where they are constants. What follows from the other
  /// sizes may differ, and then the config must say.
  std::optional<int64_t> head_dim_default;
  std::optional<int64_t> kv_heads_default;
};

struct Dimensions {
  int64_t vocab, hidden, intermediate, layers, heads, kv_heads, head_dim;
  bool attention_bias, mlp_bias, tied;
  double rope_theta, initializer_range;
  at::ScalarType dtype;
};

Result<std::string> Architecture(const Fields& config) {
  if (config.Has("architectures")) {
    const json& list = config["architectures"];
    if (!list.is_array() || (!list.empty() && !list[0].is_string())) {
      return BadInput(fmt::format("{}: field 'architectures' is {}: expected a list of names",
                                  config.origin(), Shown(list)));
    }
    if (!list.empty()) return list[0].get<std::string>();
  }
  SP_ASSIGN(const std::string type, config.Text("model_type", ""));
  if (type == "llama") return std::string("LlamaForCausalLM");
  if (type == "qwen3") return std::string("Qwen3ForCausalLM");
  if (type.empty()) {
    return BadInput(fmt::format("{}: fields 'architectures' and 'model_type' are missing: expected "
                                "one that names the architecture",
                                config.origin()));
  }
  return type;
}

Result<Decoder> DecoderOf(const Fields& config) {
  SP_ASSIGN(const std::string name, Architecture(config));
  if (name == "LlamaForCausalLM") return Decoder{.mlp_bias_allowed = true};
  if (name == "Qwen3ForCausalLM") {
    return Decoder{.qk_norm = true, .head_dim_default = 128, .kv_heads_default = 32};
  }
  return BadInput(fmt::format("{}: architecture {} is unknown: known are LlamaForCausalLM, "
                              "Qwen3ForCausalLM",
                              config.origin(), ShownText(name)));
}

/// rope_scaling, the older way of writing it, wins over rope_parameters, as in the Transformers
/// library.
Result<double> RopeTheta(const Fields& config) {
  SP_ASSIGN(const double theta, config.Positive("rope_theta", 10000.0));
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    if (!config.Has(field)) continue;
    if (!config[field].is_object()) {
      return BadInput(fmt::format("{}: field '{}' is {}: expected an object", config.origin(),
                                  field, Shown(config[field])));
    }
  }
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    if (!config.Has(field) || config[field].empty()) continue;
    const Fields rope(config[field], config.origin() + ": " + field);
    SP_TRY(rope.NoObjects());
    const char* key = rope.Has("rope_type") ? "rope_type" : "type";
    SP_ASSIGN(const std::string type, rope.Text(key, "default"));
    if (type != "default") {
      return BadInput(fmt::format("{}: RoPE type {} in '{}' is unknown: known is default",
                                  config.origin(), ShownText(type), field));
    }
    return rope.Positive("rope_theta", theta);
  }
  return theta;
}

Result<at::ScalarType> DtypeOf(const Fields& config) {
  SP_ASSIGN(std::string name,
            config.Text(config.Has("dtype") ? "dtype" : "torch_dtype", "float32"));
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name == "float32") return at::kFloat;
  if (name == "bfloat16") return at::kBFloat16;
  if (name == "float16") return at::kHalf;
  if (name == "float64") return at::kDouble;
  return BadInput(fmt::format("{}: dtype {} is unknown: known are float32, bfloat16, float16, "
                              "float64",
                              config.origin(), ShownText(name)));
}

/// Where the sizes of the heads contradict each other, or leave open which model is meant.
Status CheckHeads(const Fields& config, const Decoder& decoder, const Dimensions& d) {
  const bool must_divide = !decoder.head_dim_default || !config.Has("head_dim");
  if (must_divide && d.hidden % d.heads != 0) {
    return BadInput(fmt::format("{}: field 'hidden_size' is {}: expected a multiple of "
                                "num_attention_heads {}",
                                config.origin(), d.hidden, d.heads));
  }
  if (d.heads % d.kv_heads != 0) {
    return BadInput(fmt::format("{}: field 'num_key_value_heads' is {}: expected a divisor of "
                                "num_attention_heads {}",
                                config.origin(), d.kv_heads, d.heads));
  }
  if (d.head_dim % 2 != 0) {
    return BadInput(fmt::format("{}: head_dim is {}: expected an even number, RoPE turns pairs",
                                config.origin(), d.head_dim));
  }
  const auto stated = [&](const char* name, int64_t derived, std::optional<int64_t> constant) {
    if (config.Has(name) || derived == constant.value_or(derived)) return Ok();
    return Status(BadInput(fmt::format("{}: field '{}' is missing: its default is {}, but the "
                                       "other sizes make it {}",
                                       config.origin(), name, *constant, derived)));
  };
  SP_TRY(stated("head_dim", d.head_dim, decoder.head_dim_default));
  return stated("num_key_value_heads", d.kv_heads, decoder.kv_heads_default);
}

Result<Dimensions> DimensionsOf(const Fields& config, const Decoder& decoder) {
  Dimensions d{};
  SP_ASSIGN(d.vocab, config.Count("vocab_size"));
  SP_ASSIGN(d.hidden, config.Count("hidden_size"));
  SP_ASSIGN(d.intermediate, config.Count("intermediate_size"));
  SP_ASSIGN(d.layers, config.Count("num_hidden_layers", {}, kLayersMax));
  SP_ASSIGN(d.heads, config.Count("num_attention_heads", {}, kHeadsMax));
  SP_ASSIGN(d.kv_heads, config.Count("num_key_value_heads", d.heads, kHeadsMax));
  const int64_t derived = std::max<int64_t>(d.hidden / d.heads, 1);
  SP_ASSIGN(d.head_dim, config.Count("head_dim", derived, kHeadsMax));
  SP_TRY(CheckHeads(config, decoder, d));
  SP_ASSIGN(d.attention_bias, config.Flag("attention_bias", false));
  SP_ASSIGN(d.mlp_bias, config.Flag("mlp_bias", false));
  SP_ASSIGN(d.tied, config.Flag("tie_word_embeddings", false));
  SP_ASSIGN(d.rope_theta, RopeTheta(config));
  SP_ASSIGN(d.initializer_range, config.Positive("initializer_range", 0.02));
  SP_ASSIGN(d.dtype, DtypeOf(config));
  d.mlp_bias = d.mlp_bias && decoder.mlp_bias_allowed;
  return d;
}

class SpecBuilder {
 public:
  explicit SpecBuilder(const Dimensions& dims) : dims_(dims) {}

  void Weight(const std::string& name, std::vector<int64_t> shape) {
    TensorSpec spec{.name = name, .dtype = dims_.dtype, .shape = std::move(shape)};
    if (spec.shape.size() == 1 && name.find("norm") != std::string::npos) {
      spec.init = InitialValue::kOnes;
    }
    spec_.tensors.push_back(std::move(spec));
  }

  void Linear(const std::string& name, int64_t out, int64_t in, bool bias) {
    Weight(name + ".weight", {out, in});
    if (!bias) return;
    Weight(name + ".bias", {out});
    spec_.tensors.back().init = InitialValue::kZeros;
  }

  void InverseFrequencies(const std::string& name) {
    spec_.tensors.push_back({.name = name,
                             .kind = TensorKind::kBuffer,
                             .persistent = false,
                             .shape = {dims_.head_dim / 2},
                             .requires_grad = false,
                             .rope = RopeSpec{dims_.rope_theta}});
  }

  ModelSpec& spec() { return spec_; }

 private:
  const Dimensions& dims_;
  ModelSpec spec_;
};

void AddLayer(SpecBuilder& model, const Dimensions& d, const Decoder& decoder, int64_t layer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  const std::string attention = prefix + "self_attn.";
  model.Linear(attention + "q_proj", d.heads * d.head_dim, d.hidden, d.attention_bias);
  model.Linear(attention + "k_proj", d.kv_heads * d.head_dim, d.hidden, d.attention_bias);
  model.Linear(attention + "v_proj", d.kv_heads * d.head_dim, d.hidden, d.attention_bias);
  model.Linear(attention + "o_proj", d.hidden, d.heads * d.head_dim, d.attention_bias);
  if (decoder.qk_norm) {
    model.Weight(attention + "q_norm.weight", {d.head_dim});
    model.Weight(attention + "k_norm.weight", {d.head_dim});
  }
  model.Linear(prefix + "mlp.gate_proj", d.intermediate, d.hidden, d.mlp_bias);
  model.Linear(prefix + "mlp.up_proj", d.intermediate, d.hidden, d.mlp_bias);
  model.Linear(prefix + "mlp.down_proj", d.hidden, d.intermediate, d.mlp_bias);
  model.Weight(prefix + "input_layernorm.weight", {d.hidden});
  model.Weight(prefix + "post_attention_layernorm.weight", {d.hidden});
}

}  // namespace

Result<ModelSpec> SpecFromConfig(const std::string& text, const std::string& origin) {
  SP_ASSIGN(const json document, ParseStrictObject(text, origin));
  const Fields config(document, origin);
  if (config.Has("quantization_config")) {
    return BadInput(fmt::format("{}: field 'quantization_config' is there: quantised weights have "
                                "other tensors",
                                origin));
  }
  SP_ASSIGN(const Decoder decoder, DecoderOf(config));
  SP_ASSIGN(const Dimensions d, DimensionsOf(config, decoder));

  SpecBuilder model(d);
  model.Weight("model.embed_tokens.weight", {d.vocab, d.hidden});
  for (int64_t layer = 0; layer < d.layers; ++layer) AddLayer(model, d, decoder, layer);
  model.Weight("model.norm.weight", {d.hidden});
  model.InverseFrequencies("model.rotary_emb.inv_freq");
  model.InverseFrequencies("model.rotary_emb.original_inv_freq");
  model.Weight("lm_head.weight", {d.vocab, d.hidden});
  if (d.tied) model.spec().ties.push_back({"model.embed_tokens.weight", "lm_head.weight"});
  model.spec().init_scale = d.initializer_range * std::sqrt(3.0);
  return std::move(model.spec());
}

}  // namespace shardproof
