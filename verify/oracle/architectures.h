// The architectures that the oracle knows: a new one is a file with its function, and a row in
// hf_model.cc.
#pragma once

#include "src/core/result.h"
#include "verify/oracle/config_fields.h"
#include "verify/oracle/oracle.h"

namespace shardproof::oracle {

/// The tensors of a model with the config.json `config`, by the architecture's public definition
/// (Transformers 5): names as the model has them in memory.
/// \error kBadInput naming the field, what was expected and what was found.
using DeclareArchitecture = Result<DeclaredModel> (*)(const Fields& config);

Result<DeclaredModel> DeclareLlama(const Fields& config);
Result<DeclaredModel> DeclareQwen3(const Fields& config);
Result<DeclaredModel> DeclareQwen3Moe(const Fields& config);
Result<DeclaredModel> DeclareLfm2Moe(const Fields& config);
Result<DeclaredModel> DeclareQwen25Vl(const Fields& config);
Result<DeclaredModel> DeclareQwen3Vl(const Fields& config);

}  // namespace shardproof::oracle
