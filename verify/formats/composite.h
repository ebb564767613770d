// A checkpoint whose parts lie in folders of their own: Accelerate's pytorch_model_fsdp_0/ and
// optimizer_0/, a model/ and an optim/.
#pragma once

#include <string>
#include <vector>

#include "verify/formats/stored.h"

namespace shardproof::formats {

/// The folders in `directory`, or in a folder of it, that have files of DCP or safetensors, sorted;
/// none where a folder has the name of a step, since it is the directory of a run, or where a whole
/// model of Hugging Face's lies beside them.
std::vector<std::string> PartsOf(const std::string& directory);

/// All parts as one, each name with its folder's before it, and the files of torch.save that lie
/// beside them. Each as OpenStored. \pre `parts` are PartsOf(directory).
Result<StoredCheckpoint> OpenComposite(const std::string& directory,
                                       const std::vector<std::string>& parts, Damage* damage);

/// Adds the folders that belong to a model which lies beside them, each name with its folder's
/// before it: modules of sentence-transformers, further adapters of PEFT's.
Status AddNamedParts(const std::string& directory, StoredCheckpoint& checkpoint, Damage* damage);

/// Whether a directory is a pipeline of Diffusers', whose model_index.json names its parts.
bool IsPipeline(const std::string& directory);

/// Notes each component that model_index.json names and that is not there, or has no weights.
Status CheckPipeline(const std::string& directory, Damage* damage);

/// Whether a folder of this name can be nothing but a checkpoint: whatever is in it.
bool IsStepName(const std::string& name);

/// Whether a folder of this name is one if it has a checkpoint's files: "epoch_3" and "ba300", too.
bool MayBeStepName(const std::string& name);

/// The number behind a word for steps ("step-100", "iter_0000100", "epoch=1-step=100-loss=0.5"),
/// the last of several, or where there is none behind a shorter or coarser word ("ep1_it300");
/// empty if there is none of these either.
std::string NamedStep(const std::string& name);

}  // namespace shardproof::formats
