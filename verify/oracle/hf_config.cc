#include "verify/oracle/hf_config.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "verify/oracle/input_file.h"
#include "verify/oracle/json.h"
#include "verify/oracle/quote.h"

namespace shardproof::oracle {
namespace {

constexpr uint64_t kConfigBytesMax = 10'000'000;
// Far above any real model, and low enough that no product of three overflows 63 bits.
constexpr int64_t kSizeMax = 1 << 24;
constexpr int64_t kHeadsMax = 1 << 16;
constexpr int64_t kLayersMax = 4096;

/// A JSON object by field. null counts as absent, as it does for Transformers.
class Fields {
 public:
  static Result<Fields> Of(const std::string& where, const simdjson::dom::object& object) {
    SP_ASSIGN(std::vector<JsonMember> members, Members(where, object));
    return Fields(where, std::move(members));
  }

  std::optional<JsonElement> Find(std::string_view name) const {
    for (const JsonMember& member : members_) {
      if (member.key == name && !member.value.is_null()) return member.value;
    }
    return std::nullopt;
  }

  Result<int64_t> Integer(const std::string& name, int64_t high) const {
    const auto value = Find(name);
    if (!value) return Missing(name, fmt::format("an integer from 1 to {}", high));
    return AsInteger(where_, name, *value, 1, high);
  }

  Result<int64_t> Integer(const std::string& name, int64_t high, int64_t if_absent) const {
    return Find(name) ? Integer(name, high) : Result<int64_t>(if_absent);
  }

  Result<bool> Bool(const std::string& name, bool if_absent) const {
    const auto value = Find(name);
    if (!value) return if_absent;
    if (!value->is_bool()) return Wrong(name, "true or false", *value);
    return bool(*value);
  }

  /// A finite number above zero that an F32 can hold.
  Result<double> Positive(const std::string& name, double if_absent) const {
    const auto value = Find(name);
    if (!value) return if_absent;
    double number = 0;
    if (value->get_double().get(number) || !(number > 0) || number > 1e38) {
      return Wrong(name, "a number above 0 and up to 1e38", *value);
    }
    return number;
  }

  Result<std::string> Text(const std::string& name, const std::string& if_absent) const {
    const auto value = Find(name);
    if (!value) return if_absent;
    SP_ASSIGN(const std::string_view text, AsString(where_, name, *value));
    return std::string(text);
  }

  /// The object at `name`; no fields if it is absent.
  Result<Fields> Object(const std::string& name) const {
    const auto value = Find(name);
    if (!value) return Fields(where_ + ": " + name, {});
    simdjson::dom::object object;
    if (value->get_object().get(object)) return Wrong(name, "an object or null", *value);
    return Of(where_ + ": " + name, object);
  }

  Error Wrong(const std::string& name, const std::string& expected, const JsonElement& v) const {
    return BadInput(
        fmt::format("{}: {}: expected {}, found {}", where_, name, expected, Describe(v)));
  }
  Error Missing(const std::string& name, const std::string& expected) const {
    return BadInput(fmt::format("{}: {}: expected {}, found nothing", where_, name, expected));
  }

  bool empty() const { return members_.empty(); }
  const std::string& where() const { return where_; }
  const std::vector<JsonMember>& members() const { return members_; }

 private:
  Fields(std::string where, std::vector<JsonMember> members)
      : where_(std::move(where)), members_(std::move(members)) {}

  std::string where_;
  std::vector<JsonMember> members_;
};

Result<Architecture> ReadArchitecture(const Fields& fields) {
  simdjson::dom::array names;
  const auto value = fields.Find("architectures");
  if (value && value->get_array().get(names)) {
    return fields.Wrong("architectures", "an array of strings", *value);
  }
  if (value && names.size() > 0) {
    const JsonElement first = names.at(0).value();
    SP_ASSIGN(const std::string_view name, AsString(fields.where(), "architectures[0]", first));
    if (name == "LlamaForCausalLM") return Architecture::kLlama;
    if (name == "Qwen3ForCausalLM") return Architecture::kQwen3;
    return fields.Wrong("architectures[0]", "one of LlamaForCausalLM, Qwen3ForCausalLM", first);
  }
  const auto type = fields.Find("model_type");
  if (!type) return fields.Missing("architectures", "LlamaForCausalLM or Qwen3ForCausalLM");
  SP_ASSIGN(const std::string_view name, AsString(fields.where(), "model_type", *type));
  if (name == "llama") return Architecture::kLlama;
  if (name == "qwen3") return Architecture::kQwen3;
  return fields.Wrong("model_type", "llama or qwen3 (architectures is absent)", *type);
}

Result<std::string> ReadDtype(const Fields& fields) {
  const std::string name = fields.Find("dtype") ? "dtype" : "torch_dtype";
  SP_ASSIGN(const std::string text, fields.Text(name, "float32"));
  const std::string bare = text.rfind("torch.", 0) == 0 ? text.substr(6) : text;
  if (bare == "float32") return std::string("F32");
  if (bare == "bfloat16") return std::string("BF16");
  if (bare == "float16") return std::string("F16");
  if (bare == "float64") return std::string("F64");
  return fields.Wrong(name, "one of float32, bfloat16, float16, float64", *fields.Find(name));
}

/// Theta, whichever way it is written: rope_parameters now, rope_theta and rope_scaling before.
Result<double> ReadRopeTheta(const Fields& fields) {
  SP_ASSIGN(const Fields older, fields.Object("rope_scaling"));
  SP_ASSIGN(const Fields newer, fields.Object("rope_parameters"));
  const Fields& rope = older.empty() ? newer : older;
  for (const JsonMember& member : rope.members()) {
    if (member.value.is_object()) {
      return rope.Wrong(Printable(member.key), "one set of RoPE parameters for all layers",
                        member.value);
    }
  }
  const std::string key = rope.Find("rope_type") ? "rope_type" : "type";
  SP_ASSIGN(const std::string type, rope.Text(key, "default"));
  if (type != "default") {
    return rope.Wrong(key, "one of the known kinds of RoPE: default", *rope.Find(key));
  }
  SP_ASSIGN(const double outer, fields.Positive("rope_theta", 10000));
  return rope.Positive("rope_theta", outer);
}

/// Where a Qwen3 config is silent, Transformers takes a constant (head_dim 128, 32 key-value heads)
/// and others derive it. A config for which the two differ would mean two models: it must say.
Status CheckNoGuess(const Fields& fields, const HfConfig& config) {
  if (config.architecture != Architecture::kQwen3) return Ok();
  const auto check = [&](const char* name, int64_t derived, int64_t constant) -> Status {
    if (fields.Find(name) || derived == constant) return Ok();
    return fields.Missing(name, fmt::format("it to be stated (Transformers' Qwen3 default is {}, "
                                            "by the other sizes it is {})",
                                            constant, derived));
  };
  SP_TRY(check("head_dim", config.head_dim, 128));
  return check("num_key_value_heads", config.key_value_head_count, 32);
}

Status ReadSizes(const Fields& fields, HfConfig& config) {
  SP_ASSIGN(config.vocab_size, fields.Integer("vocab_size", kSizeMax));
  SP_ASSIGN(config.hidden_size, fields.Integer("hidden_size", kSizeMax));
  SP_ASSIGN(config.intermediate_size, fields.Integer("intermediate_size", kSizeMax));
  SP_ASSIGN(config.layer_count, fields.Integer("num_hidden_layers", kLayersMax));
  SP_ASSIGN(config.head_count, fields.Integer("num_attention_heads", kHeadsMax));
  SP_ASSIGN(config.key_value_head_count,
            fields.Integer("num_key_value_heads", kHeadsMax, config.head_count));
  const int64_t derived = config.hidden_size / config.head_count;
  SP_ASSIGN(config.head_dim, fields.Integer("head_dim", kHeadsMax, derived));
  const bool must_divide = config.architecture == Architecture::kLlama || !fields.Find("head_dim");
  if (must_divide && config.hidden_size % config.head_count != 0) {
    return BadInput(
        fmt::format("{}: hidden_size: expected a multiple of num_attention_heads {}, found {}",
                    fields.where(), config.head_count, config.hidden_size));
  }
  if (config.head_count % config.key_value_head_count != 0) {
    return BadInput(fmt::format(
        "{}: num_key_value_heads: expected a divisor of num_attention_heads {}, found {}",
        fields.where(), config.head_count, config.key_value_head_count));
  }
  if (config.head_dim < 2 || config.head_dim % 2 != 0) {
    return BadInput(fmt::format("{}: head_dim: expected an even number (RoPE pairs), found {}",
                                fields.where(), config.head_dim));
  }
  return CheckNoGuess(fields, config);
}

}  // namespace

Result<HfConfig> ReadHfConfig(const std::string& directory) {
  const std::string path = directory + "/config.json";
  SP_ASSIGN(const std::string text, ReadWholeFile(path, kConfigBytesMax));
  simdjson::dom::parser parser;
  SP_ASSIGN(const simdjson::dom::object root, ParseObject(parser, path, text));
  SP_ASSIGN(const Fields fields, Fields::Of(Printable(path), root));
  if (const auto value = fields.Find("quantization_config")) {
    return fields.Wrong("quantization_config", "none: quantised weights have other tensors",
                        *value);
  }
  HfConfig config;
  SP_ASSIGN(config.architecture, ReadArchitecture(fields));
  SP_TRY(ReadSizes(fields, config));
  SP_ASSIGN(config.tied, fields.Bool("tie_word_embeddings", false));
  SP_ASSIGN(config.attention_bias, fields.Bool("attention_bias", false));
  SP_ASSIGN(config.mlp_bias, fields.Bool("mlp_bias", false));
  SP_ASSIGN(config.initializer_range, fields.Positive("initializer_range", 0.02));
  SP_ASSIGN(config.rope_theta, ReadRopeTheta(fields));
  SP_ASSIGN(config.dtype, ReadDtype(fields));
  return config;
}

}  // namespace shardproof::oracle
