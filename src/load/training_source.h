// The training state beside a model in safetensors: in a folder of its own, so that whoever loads
// the model alone does not meet it. Tensors are in safetensors with an index, values in JSON, both
// under the keys that a directory of torch.distributed.checkpoint has.
#pragma once

#include <string>

#include "src/format/safetensors.h"

namespace shardproof {

/// Adds the training state of the checkpoint in `directory` to its source, if there is one. Maps
/// the files; reads no tensor data. \error kBadInput naming file and key, what was expected and
/// found.
Status AddTrainingState(FileSystem& files, const std::string& directory, Source& source);

}  // namespace shardproof
