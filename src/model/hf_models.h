// The architectures that a config.json may name, each in a file of its own.
#pragma once

#include "src/model/hf_fields.h"
#include "src/model/spec.h"

namespace shardproof {

/// What describes a model's tensors, given the fields of its config.json.
using DescribeArchitecture = Result<ModelSpec> (*)(const Fields& config);

Result<ModelSpec> DescribeLlama(const Fields& config);
Result<ModelSpec> DescribeQwen3(const Fields& config);
Result<ModelSpec> DescribeQwen3Moe(const Fields& config);
Result<ModelSpec> DescribeLfm2Moe(const Fields& config);
Result<ModelSpec> DescribeQwen25Vl(const Fields& config);
Result<ModelSpec> DescribeQwen3Vl(const Fields& config);

}  // namespace shardproof
