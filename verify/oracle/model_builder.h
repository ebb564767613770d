// Lists the tensors of a model, module by module.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/oracle/config_fields.h"
#include "verify/oracle/decoder_config.h"
#include "verify/oracle/oracle.h"
#include "verify/oracle/quantised_config.h"

namespace shardproof::oracle {

/// Names of one expert's projections, without ".weight".
struct ExpertNames {
  const char* gate;
  const char* up;
  const char* down;
};

/// How many of them, and how wide.
struct ExpertSizes {
  int64_t count = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
};

/// The rule of initial values, for keys that a checkpoint lacks: a norm's weight is ones, a bias
/// (and an expert bias) zeros, all else uniform with half-width initializer_range * sqrt(3), whose
/// standard deviation is initializer_range. Weight, Norm and Bias say which of them a tensor is. A
/// quantised weight is uniform too, and its scales are ones.
class ModelBuilder {
 public:
  /// \param dtype  of all parameters; empty: F32. Buffers are F32.
  /// \param quantised  what Linear and Experts become by it.
  ModelBuilder(const std::string& dtype, double initializer_range, QuantisedConfig quantised = {});

  void Weight(const std::string& name, std::vector<int64_t> shape);
  void Norm(const std::string& name, int64_t size);
  void Bias(const std::string& name, int64_t size);

  /// `<name>.weight` [out, in], and `<name>.bias` [out] if `bias`.
  void Linear(const std::string& name, int64_t in, int64_t out, bool bias);
  /// `<name>.weight` and `<name>.bias`.
  void LayerNorm(const std::string& name, int64_t size);

  /// `<name>.gate_up_proj` [count, 2 intermediate, hidden] and `<name>.down_proj`
  /// [count, hidden, intermediate]. Checkpoints keep each expert's projections by themselves:
  /// `<name>.0.<gate>.weight`, `<name>.0.<up>.weight`, `<name>.1.<gate>.weight`, ...
  void Experts(const std::string& name, const ExpertSizes& sizes, const ExpertNames& names);

  /// A persistent buffer F32 [size], zeros at first.
  void ExpertBias(const std::string& name, int64_t size);

  /// `<name>.inv_freq` and `<name>.original_inv_freq`, of which no checkpoint holds any.
  void Rotary(const std::string& name, const RotaryConfig& rotary);

  void Tie(const std::string& first, const std::string& second);

  /// Tensors from here on whose name begins with `prefix` stand in checkpoints with `stored` in its
  /// place.
  void StoreUnder(const std::string& prefix, const std::string& stored);

  /// \param config  for the message.
  /// \error kBadInput naming a tensor that no memory could hold, too many experts, experts whose
  ///   gate and up would share a block of scales, or a tied output layer that is quantised.
  Result<DeclaredModel> Finish(const Fields& config);

 private:
  TensorCase& Add(const std::string& name, std::vector<int64_t> shape, const std::string& init);
  TensorCase& AddBuffer(const std::string& name, std::vector<int64_t> shape);
  /// A layer's weight, or several packed: with `quantised`, codes and scales.
  /// \param parts  the keys that hold it; none: its own name.
  void Packed(const std::string& name, std::vector<int64_t> shape,
              const std::vector<StoredCase>& parts, bool quantised);
  Status CheckQuantised(const Fields& config) const;

  std::string dtype_;
  QuantisedConfig quantised_;
  DeclaredModel model_;
  std::vector<std::pair<std::string, std::string>> prefixes_;
  int64_t expert_parts_ = 0;  ///< what all experts would be stored as, also beyond the limit
  int64_t quantised_expert_height_ = 0;  ///< the rows of an expert's gate; 0: none is quantised
};

}  // namespace shardproof::oracle
