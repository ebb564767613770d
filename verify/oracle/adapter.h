// What a LoRA adapter makes of a model, by PEFT's public definition of its file formats and names.
#pragma once

#include "src/core/result.h"
#include "verify/oracle/oracle.h"

namespace shardproof::oracle {

/// The model as it is with the adapter that the case has, if it has one: of a layer X that is
/// adapted, X.base_layer.weight in place of X.weight, X.lora_A.default.weight F32 [rank, in] and
/// X.lora_B.default.weight F32 [out, rank], with DoRA X.lora_magnitude_vector.default.weight F32
/// [out], these with a gradient. Files keep the former as X.weight and the latter as
/// base_model.model.X.lora_A.weight and base_model.model.X.lora_magnitude_vector. Of a module X of
/// modules_to_save, X.original_module.weight in place of X.weight, and
/// X.modules_to_save.default.weight, with a gradient, which files keep as
/// base_model.model.X.weight. Of packed experts X.P [count, out, in] of target_parameters, of which
/// X has n: X, n times .base_layer, .P in place of X.P; and of the first of them lora_A F32 [count
/// * rank, in] and lora_B F32 [out, count * rank] below X, n - 1 times .base_layer, of the last
/// below X. \error kBadInput: an adapter_config.json that has more than this, targets that are not
/// all linear
///   layers with a weight of their own, or that name a projection of packed experts.
Result<DeclaredModel> Adapt(DeclaredModel model, const ModelCase& asked);

}  // namespace shardproof::oracle
