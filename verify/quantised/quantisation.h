// What the files of a checkpoint say of how its weights are quantised.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/pattern/pattern.h"

namespace shardproof {

/// How codes lie, and which tensors stand beside them. The name of each is what its writers call
/// it.
enum class Dialect {
  kUnknown,        ///< the files say that weights are quantised, in a way that is not known
  kBlockFp8,       ///< fp8 of Transformers: weight, weight_scale_inv
  kRowFp8,         ///< fbgemm_fp8: weight, weight_scale
  kModelOptFp8,    ///< weight, weight_scale of the tensor
  kModelOptNvfp4,  ///< weight, weight_scale of blocks, weight_scale_2
  kPlainCodes,     ///< compressed-tensors, a code an element: weight, weight_scale
  kPackedWords,    ///< compressed-tensors: weight_packed, weight_scale, weight_shape
  kPackedNvfp4,    ///< compressed-tensors: weight_packed, weight_scale, weight_global_scale
  kPackedMx,       ///< compressed-tensors: weight_packed, weight_scale of exponents
  kMxfp4,          ///< gpt-oss: NAME_blocks, NAME_scales
  kAwq,            ///< qweight, qzeros, scales
  kGptq,           ///< qweight, qzeros, scales, g_idx
  kBitsAndBytes4,  ///< weight, weight.absmax, weight.quant_map, weight.quant_state...
  kBitsAndBytes8,  ///< weight, SCB
  kTorchAo,        ///< _weight_qdata, _weight_scale, _weight_zero_point
  kGguf,           ///< blocks of codes and scales in one, of a type that the file says
};

/// Modules by name, by one with "*", or by "re:" and a regular expression.
class ModulePattern {
 public:
  explicit ModulePattern(std::string_view text);

  const std::string& text() const { return text_; }
  /// A regular expression fits where the module begins so, as Python's re.match has it.
  bool Fits(std::string_view module) const;
  /// Of a module by its whole name alone, not of what is in it.
  bool Names(std::string_view module) const { return IsRegex() ? Fits(module) : text_ == module; }
  /// As Fits, whatever is before the layers in the pattern and in the name.
  bool MayFit(std::string_view module) const;

 private:
  bool IsRegex() const { return text_.starts_with("re:"); }

  std::string text_;
  std::optional<Pattern> at_begin_;  ///< of a regular expression that can be read
  std::optional<Pattern> anywhere_;
};

/// Of modules that are quantised alike.
struct QuantisationScheme {
  Dialect dialect = Dialect::kUnknown;
  std::string strategy = "tensor";  ///< what has one scale: "tensor", "channel", "group", "block"
  int64_t bits = 0;
  int64_t group = 0;         ///< elements of a row that share a scale; 0: the whole row
  int64_t block_height = 0;  ///< rows that share a scale; 0: not cut into blocks
  int64_t block_width = 0;
  bool symmetric = true;
  bool zeros_less_one =
      false;                   ///< zero points are stored one too small, as GPTQ's first format has
  bool has_exponents = false;  ///< scales are bytes, each the exponent of a power of two
  std::vector<ModulePattern> targets;  ///< empty: all
};

struct Quantisation {
  std::string file;    ///< that says so; empty: none does
  std::string method;  ///< as the file calls it
  std::vector<QuantisationScheme> schemes;
  std::vector<ModulePattern> kept;  ///< modules that are not quantised
  bool keeps_only_named = false;    ///< not what is in them, too

  /// That of the first scheme that the module is a target of; null if none.
  const QuantisationScheme* SchemeOf(std::string_view module) const;
  /// Whether the list of those that are not quantised names the module or, unless only these are
  /// meant, one that it is in.
  bool Keeps(std::string_view module) const;
  /// Whether it may mean the module, under another prefix.
  bool MayKeep(std::string_view module) const;
};

/// By config.json, hf_quant_config.json or quantize_config.json in a checkpoint's directory. What
/// they say of other things, or not as JSON, is not looked at.
Quantisation ReadQuantisation(const std::string& directory);

}  // namespace shardproof
