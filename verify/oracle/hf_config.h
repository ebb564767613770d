// The fields of a Hugging Face config.json that decide which tensors a model has.
#pragma once

#include <cstdint>
#include <string>

#include "src/core/result.h"

namespace shardproof::oracle {

enum class Architecture { kLlama, kQwen3 };

struct HfConfig {
  Architecture architecture = Architecture::kLlama;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layer_count = 0;
  int64_t head_count = 0;
  int64_t key_value_head_count = 0;
  int64_t head_dim = 0;
  bool tied = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  double initializer_range = 0.02;
  double rope_theta = 10000;
  std::string dtype = "F32";  ///< safetensors' name
};

/// Reads and validates `<directory>/config.json`.
/// \error kBadInput naming the file, the field, what was expected and what was found.
Result<HfConfig> ReadHfConfig(const std::string& directory);

}  // namespace shardproof::oracle
