// `shardproof audit` and `shardproof seal` as a library: is a checkpoint all there, what is in it,
// and are its bytes still those that were written, and sealed? Each file is read once, a few MiB at
// a time.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "src/digest/digest.hpp"

namespace shardproof {

/// One tensor of a checkpoint, as it was read.
struct AuditedTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  uint64_t chunks = 0;
  uint64_t elements = 0;
  uint64_t bytes = 0;
  uint64_t nan_count = 0;  ///< of a complex tensor: of its parts
  uint64_t inf_count = 0;
  Digest digest;  ///< of the row-major byte image, however it is cut (SPECIFICATION.md)
};

struct AuditedValue {
  std::string name;
  std::string text;  ///< in Python's notation
  Digest digest;     ///< of the text
};

/// One file that the checkpoint consists of.
struct AuditedFile {
  std::string name;  ///< within the directory
  uint64_t bytes = 0;
  Digest digest;  ///< of those of its bytes that are no tensor's, where they are in it
};

/// A file that lies in the checkpoint's directory and is no part of the model: optimizer.pt.
struct FileBeside {
  std::string name;
  std::vector<AuditedTensor> tensors;
  std::vector<AuditedValue> values;
};

struct AuditResult {
  std::string path;
  std::string format;                  ///< "DCP", "safetensors" or "torch.save"
  std::vector<AuditedTensor> tensors;  ///< sorted by name
  std::vector<AuditedValue> values;    ///< likewise
  std::vector<AuditedFile> files;      ///< sorted by name
  std::vector<FileBeside> beside;      ///< files that were read too; no seal has them
  std::vector<std::string> unread;     ///< other files that have a checkpoint's names
  uint64_t bytes = 0;                  ///< of all tensors
  std::vector<std::string> damage;     ///< a line each; empty: sound
  std::vector<std::string> unjudged;   ///< what may be weights and could not be read, a line each
  /// Classes and functions of pickles that are not known, with the number of their values.
  std::map<std::string, uint64_t> opaque;
  uint64_t entries_checked = 0;    ///< of archives: held against their CRC-32
  uint64_t entries_unchecked = 0;  ///< of archives: have none, or could not be read whole
  /// How weights are quantised, by which file, and how many have scales; empty: they are not.
  std::string quantisation;
  std::vector<std::string> remarks;  ///< what is worth knowing and is not wrong, a line each
  std::string seal;                  ///< the seal that it was held against; empty: none
  bool is_headers_only = false;  ///< no value was read: there are neither digests nor NaN counts

  bool IsDamaged() const { return !damage.empty(); }
  /// Nothing is wrong, and nothing that may be weights was left unread.
  bool IsSound() const { return damage.empty() && unjudged.empty(); }
};

/// Which sums of its bytes an audit takes, besides what is in it and NaN and Inf.
struct AuditSums {
  bool digests = true;    ///< of tensors and files: what a seal is made of and held against
  bool crcs = true;       ///< of entries of archives; without them entries_* are 0
  bool values = true;     ///< false: headers alone are read, and there is no sum at all
  bool integrity = true;  ///< SHA-256 of files, where an integrity.json lists them
};

/// Reads the checkpoint whole unless `sums` says otherwise, on as many threads as there are cores;
/// its seal is not looked at. \error kBadInput, one line: what says what is in the checkpoint
/// cannot be read.
Result<AuditResult> Audit(const std::string& path, AuditSums sums = {});

/// The seal that belongs to a checkpoint: shardproof.seal.json within a directory, beside a file.
std::string SealPath(const std::string& checkpoint);

/// Writes what Audit found of a sound checkpoint to `path`, atomically. \pre it took digests.
/// \error kBadInput if the checkpoint is not sound, or the file cannot be written.
Status WriteSeal(const AuditResult& audited, const std::string& path);

/// Adds to the damage what differs from the seal at `path`: tensors and values, and where the
/// checkpoint consists of the very files that were sealed, any other byte of theirs. \pre it took
/// digests. \error
/// kBadInput: no seal, or a damaged one.
Status HoldAgainstSeal(const std::string& path, AuditResult& audited);

/// A step as its digits without leading zeros, by which steps sort: the longer is the larger.
using Step = std::pair<size_t, std::string>;

/// The step that a file or folder says in its name: behind a word for steps, else its last number.
std::optional<Step> StepOf(const std::string& name);

/// What a training run has left in a folder.
struct CheckpointList {
  /// Of checkpoints, newest first: by the step in their names, else by age.
  std::vector<std::string> paths;
  std::vector<std::string> others;  ///< names of folders that are none, sorted: logs, results
};

/// The checkpoints below `root`. A folder is one if it has files of a format that is known, or its
/// name is that of a step ("step-100", "100"), whatever is in it: a save may have ended early.
/// Names that a save in progress has are left out. \error kBadInput if `root` cannot be listed.
Result<CheckpointList> CheckpointsOf(const std::string& root);

/// For a terminal. `all`: every tensor and value, not only what stands out.
std::string AuditText(const AuditResult& result, bool all);
nlohmann::json AuditJson(const AuditResult& result);

}  // namespace shardproof
