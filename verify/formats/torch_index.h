// The indexes of a directory of torch.save: which file has which key.
#pragma once

#include <string>
#include <vector>

#include "verify/formats/stored.h"

namespace shardproof::formats {

inline constexpr const char* kTorchIndexName = "pytorch_model.bin.index.json";

/// Notes each key that the index of Hugging Face's and its files say differently, and each file
/// that another index, as of an optimizer's parts, names and that is not there. \param
/// file_of_tensor  of each of the checkpoint's tensors. \pre names are as the files have them.
Status CheckTorchIndexes(const std::string& directory, const StoredCheckpoint& checkpoint,
                         const std::vector<uint32_t>& file_of_tensor, Damage* damage);

}  // namespace shardproof::formats
