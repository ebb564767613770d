// Low-rank adapters (LoRA): a linear layer's own weight is frozen and two small matrices are
// trained beside it. Names are those that the PEFT library gives them when it injects an adapter
// into a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/core/result.h"
#include "src/model/spec.h"
#include "src/pattern/pattern.h"

namespace shardproof {

inline constexpr const char* kAdapterConfigName = "adapter_config.json";
inline constexpr const char* kAdapterFileName = "adapter_model.safetensors";
/// Where in a directory that a save writes the adapter is, in a form that PEFT reads.
inline constexpr const char* kAdapterFolder = "adapter";
/// What PEFT calls all linear layers but lm_head, in place of names.
inline constexpr const char* kAllLinear = "all-linear";
/// What begins every key of an adapter on disk.
inline constexpr const char* kAdapterKeyPrefix = "base_model.model.";

/// Which modules, by their names.
struct ModuleChoice {
  std::vector<std::string> names = {};  ///< whole ones, or how they end, from a dot on
  std::optional<Pattern> pattern = {};  ///< in place of names: what whole ones fit

  bool empty() const { return names.empty() && !pattern; }
  bool IsAllLinear() const { return names == std::vector<std::string>{kAllLinear}; }
  Result<bool> Has(const std::string& module) const;
};

struct LoraSpec {
  int64_t rank = 0;
  ModuleChoice targets;                                 ///< or just kAllLinear
  ModuleChoice excluded = {};                           ///< no targets, even so
  std::vector<std::pair<Pattern, int64_t>> ranks = {};  ///< of modules that fit, in place of `rank`
  std::vector<std::string> saved =
      {};                   ///< modules that are trained whole: how they end, from anywhere
  bool magnitudes = false;  ///< of each row, beside A and B (DoRA)
  std::vector<std::string> experts =
      {};  ///< packed experts: whole names, or how they end, from a dot on
};

/// What a PEFT adapter_config.json says.
/// \error kBadInput naming the field if it is of another kind than LORA, or has more than A, B and
///   magnitudes of linear layers, packed experts, and modules that are trained whole.
/// \source the LoraConfig of the PEFT library.
Result<LoraSpec> LoraFromConfig(const std::string& text, const std::string& origin);

/// The adapter_config.json that says so.
std::string LoraToConfig(const LoraSpec& lora);

/// The model with every parameter frozen, and of every linear layer that is a target: its tensors
/// below base_layer, and lora_A.default.weight F32 [rank, in] and lora_B.default.weight F32
/// [out, rank], trained, with magnitudes also lora_magnitude_vector.default.weight F32 [out]. What
/// no adapter file holds begins uniform (A), zero (B) and one. Of every module that is trained
/// whole: its tensors below original_module, and once more, trained if they are parameters, below
/// modules_to_save.default. Of packed experts [count, out, in] that are targets: lora_A F32 [count
/// * rank, in] and lora_B F32 [out, count * rank] of the module, which PEFT wraps once for each of
/// them. \param origin  what asks for the adapter, for errors. \error kBadInput if a target is no
/// linear layer, is tied or quantised, or none is one; if one names
///   what is packed in experts; if what is trained whole is tied, quantised, has packed experts, or
///   overlaps with a target or another such module; if what is to be packed experts is not.
Result<ModelSpec> WithAdapter(ModelSpec model, const LoraSpec& lora, const std::string& origin);

}  // namespace shardproof
