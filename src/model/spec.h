// What a model consists of, before any of it exists: a pure description that a config.json or a
// synthetic case gives.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "src/core/result.h"

namespace shardproof {

enum class TensorKind { kParameter, kBuffer };
enum class InitialValue { kUniform, kOnes, kZeros };

/// RoPE inverse frequencies of kind "default": F32 [dim/2], value i = theta^(-2i/dim).
struct RopeSpec {
  double theta = 10000.0;
};

struct TensorSpec {
  std::string name;  ///< FQN; dots make the module tree
  TensorKind kind = TensorKind::kParameter;
  bool persistent = true;  ///< in the state dict; false for some buffers only
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;  ///< global
  bool requires_grad = true;
  std::map<std::string, std::string> attributes;  ///< user attributes, kept through everything
  InitialValue init = InitialValue::kUniform;     ///< if the checkpoint lacks it
  bool built_real = false;  ///< created on the real device although the model is on meta
  std::optional<RopeSpec> rope;  ///< derived: recomputed, never loaded
};

struct ModelSpec {
  std::vector<TensorSpec> tensors;
  std::vector<std::vector<std::string>> ties;  ///< names that share one tensor; the first is canonical
  double init_scale = 0.0;  ///< half-width of kUniform
};

/// The model that a Hugging Face config.json describes. `text` is the file's content and `origin`
/// its name for errors. Known: LlamaForCausalLM and Qwen3ForCausalLM with RoPE "default".
/// \error kBadInput naming the field, what was expected and found; an unknown architecture with the
///   list of the known ones.
/// \source configuration and modelling files of the Transformers library.
Result<ModelSpec> SpecFromConfig(const std::string& text, const std::string& origin);

}  // namespace shardproof
