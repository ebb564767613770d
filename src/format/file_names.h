// Names of files of a checkpoint that its writer and its readers agree on.
#pragma once

namespace shardproof {

/// What torch.distributed.checkpoint says what lies where in.
inline constexpr const char* kDcpMetadataName = ".metadata";

/// The folder of the training state beside a model in safetensors, and its files.
inline constexpr const char* kTrainingFolder = "training";
inline constexpr const char* kStateIndexName = "state.safetensors.index.json";
inline constexpr const char* kValuesName = "values.json";

}  // namespace shardproof
