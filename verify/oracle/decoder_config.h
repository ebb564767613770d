// The fields that every decoder-only language model's configuration has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/core/result.h"
#include "verify/oracle/config_fields.h"
#include "verify/oracle/rope_config.h"

namespace shardproof::oracle {

// Far above any real model, and low enough that no product of two overflows 63 bits.
constexpr int64_t kSizeMax = 1 << 24;
constexpr int64_t kHeadsMax = 1 << 16;
constexpr int64_t kLayersMax = 4096;

/// Constants of an architecture's configuration class in Transformers, for fields left out.
struct DecoderDefaults {
  std::optional<int64_t> head_dim;              ///< none: hidden_size / num_attention_heads
  std::optional<int64_t> key_value_head_count;  ///< none: num_attention_heads
  bool heads_fill_hidden = false;  ///< hidden_size must be a multiple of the heads in any case
  RopeDefaults rope;
};

struct DecoderConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layer_count = 0;
  int64_t head_count = 0;
  int64_t key_value_head_count = 0;
  int64_t head_dim = 0;
  double initializer_range = 0.02;
  RotaryConfig rotary;
};

/// \error kBadInput naming the file, the field, what was expected and what was found.
Result<DecoderConfig> ReadDecoder(const Fields& fields, const DecoderDefaults& defaults);

/// safetensors' name of `dtype` or `torch_dtype`; empty if neither is there.
Result<std::string> ReadDtype(const Fields& fields);

}  // namespace shardproof::oracle
