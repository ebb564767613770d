// Which modules of a config.json are quantised, and what tensors they then have.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/model/hf_fields.h"

namespace shardproof {

inline constexpr const char* kMethodFp8 = "fp8";
inline constexpr const char* kMethodCompressed = "compressed-tensors";

/// What becomes of a matrix, its last two dims: codes under its own name, and beside them, under
/// that name with `suffix`, a factor for each block.
struct QuantisedForm {
  at::ScalarType codes;
  const char* suffix;
  std::optional<at::ScalarType> factors;  ///< nothing: the model's dtype
  int64_t rows = 1;                       ///< of a block
  int64_t columns = 1;
  bool trained = true;  ///< requires_grad of all that the module has, its bias too

  std::vector<int64_t> FactorShape(std::vector<int64_t> shape) const;
};

class Quantisation {
 public:
  /// \returns null if the module stays as it is.
  const QuantisedForm* Of(const std::string& module) const;

  /// Of an architecture whose checkpoints name modules otherwise than the model does: what is kept
  /// goes by the model's names from here on.
  void RenameKept(std::string (*to_model)(const std::string&));

  /// \error kBadInput if the rows of one expert's gate share a block with its up's.
  Status CheckExperts(const Fields& config, const std::string& module, int64_t inner) const;

  friend Result<Quantisation> QuantisationFromConfig(const Fields& config, bool tied);

 private:
  std::optional<QuantisedForm> form_;
  std::vector<std::string> kept_;  ///< modules that are not converted
  bool kept_exactly_ = false;      ///< by whole name; else by Transformers' patterns
};

/// The method that `quantization_config`, which must be there, names.
Result<std::string> QuantMethod(const Fields& config);

/// Nothing is quantised if the config does not say so. Known: `fp8`, factors of blocks as the
/// Transformers library's FineGrainedFP8Config, and `compressed-tensors` with int8 weights, a
/// factor for each row.
/// \param tied  whether lm_head is the embeddings, and so cannot be quantised.
/// \error kBadInput naming the field, for all that would make other tensors.
/// \source quantizers/ and integrations/finegrained_fp8.py of the Transformers library, and
///   quantization/ of compressed-tensors.
Result<Quantisation> QuantisationFromConfig(const Fields& config, bool tied);

}  // namespace shardproof
