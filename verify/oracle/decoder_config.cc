#include "verify/oracle/decoder_config.h"

#include <fmt/format.h>

namespace shardproof::oracle {
namespace {

Status ReadHeads(const Fields& fields, const DecoderDefaults& defaults, DecoderConfig& config) {
  SP_ASSIGN(config.head_count, fields.Integer("num_attention_heads", kHeadsMax));
  const std::string groups = "num_key_value_heads";
  const int64_t usual = fields.IsNull(groups)
                            ? config.head_count
                            : defaults.key_value_head_count.value_or(config.head_count);
  SP_ASSIGN(config.key_value_head_count, fields.IntegerOr(usual, groups, kHeadsMax));
  const bool is_given = fields.Has("head_dim") || defaults.head_dim;
  const int64_t derived = config.hidden_size / config.head_count;
  SP_ASSIGN(config.head_dim,
            fields.IntegerOr(defaults.head_dim.value_or(derived), "head_dim", kHeadsMax));
  const bool must_divide = defaults.heads_fill_hidden || !is_given;
  if (must_divide && config.hidden_size % config.head_count != 0) {
    return fields.Wrong("hidden_size",
                        fmt::format("a multiple of num_attention_heads {}", config.head_count),
                        config.hidden_size);
  }
  if (config.head_count % config.key_value_head_count != 0) {
    return fields.Wrong("num_key_value_heads",
                        fmt::format("a divisor of num_attention_heads {}", config.head_count),
                        config.key_value_head_count);
  }
  if (config.head_dim < 2 || config.head_dim % 2 != 0) {
    return fields.Wrong("head_dim", "an even number (RoPE pairs)", config.head_dim);
  }
  return Ok();
}

}  // namespace

Result<DecoderConfig> ReadDecoder(const Fields& fields, const DecoderDefaults& defaults) {
  DecoderConfig config;
  SP_ASSIGN(config.vocab_size, fields.Integer("vocab_size", kSizeMax));
  SP_ASSIGN(config.hidden_size, fields.Integer("hidden_size", kSizeMax));
  SP_ASSIGN(config.intermediate_size, fields.Integer("intermediate_size", kSizeMax));
  SP_ASSIGN(config.layer_count, fields.Integer("num_hidden_layers", kLayersMax));
  SP_TRY(ReadHeads(fields, defaults, config));
  SP_ASSIGN(config.initializer_range, fields.Positive("initializer_range", 0.02));
  SP_ASSIGN(config.rotary, ReadRope(fields, defaults.rope, config.head_dim));
  return config;
}

Result<std::string> ReadDtype(const Fields& fields) {
  const std::string name = fields.Has("dtype") ? "dtype" : "torch_dtype";
  SP_ASSIGN(const std::string text, fields.Text(name, ""));
  const std::string bare = text.starts_with("torch.") ? text.substr(6) : text;
  if (text.empty() && !fields.Has(name)) return std::string();
  if (bare == "float32") return std::string("F32");
  if (bare == "bfloat16") return std::string("BF16");
  if (bare == "float16") return std::string("F16");
  if (bare == "float64") return std::string("F64");
  return fields.Wrong(name, "one of float32, bfloat16, float16, float64", *fields.Find(name));
}

}  // namespace shardproof::oracle
