// Saving: the flow that formats share, and sharded safetensors with an index (and
// training state in a folder beside them, load/training_source.h). Every rank writes its own
// bytes, so nothing is gathered, and one rename makes the whole of it the checkpoint.
#pragma once

#include "src/checkpoint/state_dict.h"
#include "src/contract/stages.h"
#include "src/manifest/manifest.h"
#include "src/model/model.h"

namespace shardproof {

/// What one key of the files to be written holds.
struct SavedTensor {
  std::string key;
  StateTensor state;
  uint64_t offset = 0;  ///< absolute in the file, bytes
};

struct SavedFile {
  std::string folder;  ///< within the checkpoint: "", "training", "adapter"
  std::string name;    ///< "model-00001-of-00004.safetensors"
  std::string header;  ///< the 8-byte length and the JSON, padded to 8 bytes
  uint64_t size = 0;   ///< bytes, header included
  std::vector<SavedTensor> tensors;

  /// Within the checkpoint: "adapter/adapter_model.safetensors".
  std::string Path() const { return folder.empty() ? name : folder + "/" + name; }
};

/// The files for a state dict. The model's tensors in module order, each once; what trains it in
/// files of its own; an adapter's in one of its own, the last. A pure function of names, shapes and
/// dtypes, so that every rank plans alike without a collective.
/// \param max_file_bytes data bytes a file may hold before the next is begun; 0: the total divided
///   by `world_size`, rounded up, of model and training state each.
std::vector<SavedFile> PlanFiles(const StateDict& state, uint64_t max_file_bytes,
                                 int64_t world_size);

/// Whether a save may replace `directory`: it is absent, empty, or a checkpoint with an index or
/// DCP's .metadata (or named as a job's step) and nothing else in it.
/// \error kBadInput if not.
Status CheckReplaceable(FileSystem& files, const std::string& directory);

/// A save in parts. Without Finish nothing is committed.
class SaveUnderWay {
 public:
  virtual ~SaveUnderWay() = default;
  /// Writes this rank's bytes; durable on return. No collective: it may run beside the job's steps.
  virtual Status Write() = 0;
  /// Commits, if `written`, what Write returned, is good on every rank. Collective.
  virtual Status Finish(const Status& written) = 0;
};

/// Begins a save in job.format: looks at what is to be replaced, and makes the staging directory,
/// "<save_to>.saving". Collective. The model must not change before Finish, which it and `stages`
/// outlive. \error as SaveModel.
Result<std::unique_ptr<SaveUnderWay>> BeginSave(const Model& model, const Stages& stages,
                                                const Job& job, World& world);

/// Saves in job.format. Writes into "<save_to>.saving", then commits. The previous checkpoint at
/// save_to stays whole until the rename, and for good if anything fails before it. Needs a file
/// system that all ranks share. \error kBadInput if save_to exists and is no checkpoint; kFailed,
/// kPeer otherwise.
Status SaveModel(const Model& model, const Stages& stages, const Job& job, World& world);

/// Writes what this rank owns of planned files, and rank 0 the headers and replicated tensors;
/// durable on return. \returns what it adds to the manifest.
Result<SaveDigests> WriteShards(const std::vector<SavedFile>& plan, const Job& job,
                                const Stages& stages, const std::string& directory, World& world);

/// Makes the durable directory `staging` the one called `target`, atomically, and removes what was
/// there before.
Status CommitByRename(const std::string& staging, const std::string& target, World& world);

}  // namespace shardproof
