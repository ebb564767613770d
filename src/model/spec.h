// What a model consists of, before any of it exists: a pure description that a config.json or a
// synthetic case gives.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/result.h"

namespace shardproof {

enum class TensorKind { kParameter, kBuffer };
enum class InitialValue { kUniform, kOnes, kZeros };

enum class RopeKind { kDefault, kLinear, kDynamic, kYarn, kLongrope, kLlama3, kProportional };

/// By the name that the field's configurations give it; nothing if there is none of that name.
std::optional<RopeKind> RopeKindFromName(std::string_view name);
std::string KnownRopeKinds();

/// What decides a buffer of rotary inverse frequencies, F32 [ceil(dim/2)]; src/model/rope.h says
/// how.
struct RopeSpec {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000.0;
  int64_t dim = 0;               ///< rotary dims, the divisor of the exponents; 0: twice the length
  double factor = 1.0;           ///< kLinear, kYarn, kLlama3, kProportional
  double low_freq_factor = 1.0;  ///< kLlama3
  double high_freq_factor = 4.0;          ///< kLlama3
  int64_t original_length = 0;            ///< kYarn, kLlama3: positions of pre-training
  double beta_fast = 32.0;                ///< kYarn
  double beta_slow = 1.0;                 ///< kYarn
  bool truncate = true;                   ///< kYarn: whether the ramp's ends are whole
  std::vector<double> short_factor = {};  ///< kLongrope: one a frequency
  int64_t rotated = 0;                    ///< kProportional: leading frequencies that are not 0
};

/// A key of a checkpoint that holds a part of a tensor.
struct StoredKey {
  std::string key;
  std::vector<int64_t> shape;
};

struct TensorSpec {
  std::string name;  ///< FQN; dots make the module tree
  TensorKind kind = TensorKind::kParameter;
  bool persistent = true;  ///< in the state dict; false for some buffers only
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;  ///< global
  /// Of the model that is built, in elements, one a dim; empty: row-major. Whatever is allocated
  /// for it keeps the order that they give the dims in memory, and leaves no gaps.
  std::vector<int64_t> strides = {};
  bool requires_grad = true;
  std::map<std::string, std::string> attributes;  ///< user attributes, kept through everything
  InitialValue init = InitialValue::kUniform;     ///< if the checkpoint lacks it
  bool built_real = false;       ///< created on the real device although the model is on meta
  std::optional<RopeSpec> rope;  ///< derived: recomputed, never loaded
  bool linear = false;           ///< the weight of a linear layer, [out, in]
  /// How checkpoints keep it if not under its own name: ways in order of preference, each the keys
  /// whose tensors make it, one after the other in row-major order. Its own name is tried last.
  std::vector<std::vector<StoredKey>> stored;
  bool adapter = false;  ///< of a low-rank adapter, which a save keeps in files of its own
};

struct ModelSpec {
  std::vector<TensorSpec> tensors;
  std::vector<std::vector<std::string>>
      ties;                 ///< names that share one tensor; the first is canonical
  double init_scale = 0.0;  ///< half-width of kUniform
};

/// The model that a Hugging Face config.json describes. `text` is the file's content and `origin`
/// its name for errors. Known: Llama, Qwen3, Qwen3-MoE, LFM2-MoE, Qwen2.5-VL and Qwen3-VL. Names
/// are those that the Transformers library gives the tensors of a built model; `stored` says under
/// which keys checkpoints keep them. Some may be quantised: hf_quantised.h. \error kBadInput naming
/// the field, what was expected and found; an unknown architecture with the
///   list of the known ones.
/// \source configuration and modelling files of the Transformers library.
Result<ModelSpec> SpecFromConfig(const std::string& text, const std::string& origin);

}  // namespace shardproof
