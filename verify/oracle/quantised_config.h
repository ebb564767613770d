// The `quantization_config` of a config.json: which linear layers are kept as codes with scales.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/result.h"
#include "verify/oracle/config_fields.h"

namespace shardproof::oracle {

/// Names of the methods, as `quant_method` has them.
inline constexpr std::string_view kBlockFp8 = "fp8";
inline constexpr std::string_view kCompressedTensors = "compressed-tensors";

/// What the weight of a quantised layer is made of. Its scales stand beside it, under the weight's
/// name and `scale_ending`, one for each block of rows and columns.
struct QuantisedWeight {
  std::string dtype;  ///< of the codes
  std::string scale_ending;
  std::string scale_dtype;  ///< empty: that of the model
  int64_t block_height = 1;
  int64_t block_width = 0;    ///< 0: the whole width
  bool requires_grad = true;  ///< of codes and scales, and of the layer's bias

  /// \param shape  of the codes: two dims at least.
  std::vector<int64_t> ScaleShape(std::vector<int64_t> shape) const;
};

/// A model's; none of its layers is quantised until one is read.
class QuantisedConfig {
 public:
  /// \param config  the whole config.json; no quantization_config: nothing is quantised.
  /// \param methods  those that the architecture is known with; none: a quantization_config is
  ///   refused.
  /// \error kBadInput naming the field, what was expected and what was found: for everything but
  ///   fp8 with blocks of F32 scales, and 8-bit integers of compressed-tensors with a scale a row.
  static Result<QuantisedConfig> Read(const Fields& config,
                                      const std::vector<std::string_view>& methods);

  /// Whether the linear layer or the experts of that name are quantised; how, says weight().
  bool Has(std::string_view module) const;
  const QuantisedWeight& weight() const { return weight_; }

  /// For a checkpoint whose config names layers as its keys do, and not as the model does.
  void RenameKept(std::string (*model_name)(const std::string& name));

  /// For messages: the field that lists the layers which are not.
  const char* ListOfKept() const;

 private:
  enum class Method { kNone, kBlockFp8, kCompressedTensors };

  Status ReadBlockFp8(const Fields& fields);
  Status ReadCompressedTensors(const Fields& fields);

  Method method_ = Method::kNone;
  QuantisedWeight weight_;
  std::vector<std::string> kept_;
};

}  // namespace shardproof::oracle
