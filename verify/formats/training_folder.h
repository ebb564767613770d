// What a training job has kept beside a model in safetensors, in the folder "training" of the
// checkpoint: tensors in safetensors with an index, "state.safetensors.index.json", and what is no
// tensor in "values.json".
#pragma once

#include <string>

#include "verify/formats/stored.h"

namespace shardproof::formats {

/// Whether the checkpoint in `directory` has such a folder.
bool HoldsTrainingFolder(const std::string& directory);

/// Adds what is in it, under its keys; files are named within `directory`. Each as OpenStored.
Status AddTrainingFolder(const std::string& directory, StoredCheckpoint& checkpoint,
                         Damage* damage);

}  // namespace shardproof::formats
