// Low-rank adapters (LoRA): a linear layer's own weight is frozen and two small matrices are trained
// beside it. Names are those that the PEFT library gives them when it injects an adapter into a model.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "src/model/spec.h"

namespace shardproof {

inline constexpr const char* kAdapterConfigName = "adapter_config.json";
inline constexpr const char* kAdapterFileName = "adapter_model.safetensors";
/// Where in a directory that a save writes the adapter is, in a form that PEFT reads.
inline constexpr const char* kAdapterFolder = "adapter";
/// What begins every key of an adapter on disk.
inline constexpr const char* kAdapterKeyPrefix = "base_model.model.";

struct LoraSpec {
  int64_t rank = 0;
  /// Whole names of modules or how they end, from a dot on; or just "all-linear": all but lm_head.
  std::vector<std::string> targets;
  std::map<std::string, int64_t> ranks = {};  ///< of modules that end so, in place of `rank`
};

/// What a PEFT adapter_config.json says.
/// \error kBadInput naming the field if it is of another kind than LORA, has more than A and B for
///   linear layers, or picks modules by a pattern.
/// \source the LoraConfig of the PEFT library.
Result<LoraSpec> LoraFromConfig(const std::string& text, const std::string& origin);

/// The adapter_config.json that says so.
std::string LoraToConfig(const LoraSpec& lora);

/// The model with every parameter frozen, and of every linear layer that is a target: its tensors
/// below base_layer, and lora_A.default.weight F32 [rank, in] and lora_B.default.weight F32
/// [out, rank], trained. What no adapter file holds begins uniform (A) and zero (B).
/// \param origin  what asks for the adapter, for errors.
/// \error kBadInput if a target is no linear layer, is tied or quantised, or none is one; if one names
///   what is packed in experts; if a rank is given twice for one layer.
Result<ModelSpec> WithAdapter(ModelSpec model, const LoraSpec& lora, const std::string& origin);

}  // namespace shardproof
