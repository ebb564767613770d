// Weights that a file of safetensors holds in several tensors each, by what its header says.
#pragma once

#include <string>
#include <vector>

#include "verify/formats/stored.h"

namespace shardproof {

struct FlattenedPart {
  std::string name;    ///< of the tensor: "l._weight_scale"
  std::string weight;  ///< that it is a part of: "l.weight"
  std::string file;    ///< whose header says so
};

/// As torchao writes them: `_tensor_data_names` of each weight. What cannot be read says none.
std::vector<FlattenedPart> FlattenedPartsOf(const formats::StoredCheckpoint& checkpoint);

}  // namespace shardproof
