// What a LoRA adapter makes of a model, by PEFT's public definition of its file formats and names.
#pragma once

#include "src/core/result.h"
#include "verify/oracle/oracle.h"

namespace shardproof::oracle {

/// The model as it is with the adapter that the case has, if it has one: of a layer X that is adapted,
/// X.base_layer.weight in place of X.weight, X.lora_A.default.weight F32 [rank, in] and
/// X.lora_B.default.weight F32 [out, rank], these alone with a gradient. Files keep the former as
/// X.weight and the latter as base_model.model.X.lora_A.weight.
/// \error kBadInput: an adapter_config.json that is none of a plain LoRA, targets that are not all
///   linear layers with a weight of their own, or that name a projection of packed experts.
Result<DeclaredModel> Adapt(DeclaredModel model, const ModelCase& asked);

}  // namespace shardproof::oracle
