// What a checkpoint on disk holds, of any format that is known: tensors in pieces somewhere in
// files, and values that are none. Nothing of src/ is used to read it: it is what the pipeline's
// own are held against.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/formats/zip.h"
#include "verify/oracle/oracle.h"

namespace shardproof::formats {

/// A box of a tensor, and where its elements lie.
struct Chunk {
  std::vector<int64_t> offsets;  ///< of its first element in the tensor, per dim
  std::vector<int64_t> sizes;    ///< elements, per dim
  std::vector<int64_t> strides;  ///< elements in the file from one to the next, per dim
  uint32_t file = 0;             ///< index into StoredCheckpoint::files
  uint64_t file_offset = 0;      ///< of its first element, bytes

  uint64_t Elements() const;
  /// Whether its elements lie one after the other, in row-major order.
  bool IsRowMajor() const;
};

/// Elements from one to the next per dim, of a tensor that lies in row-major order. A dim without
/// elements counts as one.
std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& shape);

/// Of a tensor that is blocks of codes with their scales: where in a block its scales lie.
struct BlockScales {
  uint64_t block_bytes = 0;  ///< 0: it has no blocks
  std::string dtype;         ///< of the scales
  std::vector<uint64_t> at;  ///< bytes from the start of the block
};

struct StoredTensor {
  std::string name;   ///< FQN, or the keys that lead to it joined by dots
  std::string dtype;  ///< safetensors' name
  std::vector<int64_t> shape;
  std::vector<Chunk> chunks;  ///< sorted by offsets; they tile the tensor
  /// Further copies of the whole tensor that other ranks saved, each tiled like `chunks`.
  std::vector<std::vector<Chunk>> replicas = {};
  BlockScales scales = {};

  uint64_t Elements() const;
  uint64_t Bytes() const;
};

/// A value that is no tensor.
struct StoredValue {
  std::string name;
  std::string text;  ///< in Python's notation
};

struct StoredFile {
  std::string name;  ///< within the directory; the file's own name if the checkpoint is one file
  std::string path;
  uint64_t bytes = 0;
};

/// An archive of torch.save: a file, or of DCP a part of one.
struct StoredArchive {
  std::string item;  ///< of DCP: the tensor or value that it is of
  uint32_t file = 0;
  std::vector<ZipEntry> entries;  ///< their names without the folder that all are in
};

/// Where a rank is in the mesh of a DTensor; without dims where none is said.
struct MeshPlace {
  std::vector<int64_t> sizes;       ///< ranks along each dim
  std::vector<int64_t> coordinate;  ///< of this rank
};

/// What one rank saved of a tensor that is sharded or replicated.
struct StoredShard {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;  ///< of the whole tensor
  std::vector<Chunk> chunks;   ///< those of the rank
  MeshPlace place = {};
  uint32_t file = 0;  ///< index into StoredCheckpoint::files
};

struct StoredCheckpoint {
  std::string format;                 ///< "safetensors", "DCP" or "torch.save"
  std::vector<StoredTensor> tensors;  ///< sorted by name
  std::vector<StoredValue> values;    ///< likewise
  std::vector<StoredShard> shards;    ///< not put together yet; none in what OpenStored returns
  std::vector<StoredFile> files;
  std::vector<StoredArchive> archives;  ///< none of safetensors
  /// Classes and functions that pickles name and that are not known, each with the number of values
  /// that it would have made. None of them was imported or called.
  std::map<std::string, uint64_t> opaque;
  /// What could hold weights and could not be read, a line each.
  std::vector<std::string> unjudged;
  uint64_t parts = 0;       ///< tensors, values and what holds them, counted as they are read
  uint64_t text_bytes = 0;  ///< of names and texts, likewise
};

using oracle::Damage;

/// The checkpoint at `path`: a DCP directory (one with a .metadata), a safetensors directory or
/// file, a file of torch.save or a directory of such; or a
/// directory of folders that are each one of the first two. Complete: every piece is in its file,
/// and a tensor's pieces neither overlap nor leave a gap. Where several files of torch.save have
/// the same names, as those of ranks do, each name has its file's before it: "mp_rank_00/model/w".
/// \param damage  if given, takes what is wrong with what could be read, a line each, and the
/// tensors
///   and values concerned are left out: a missing or short file, pieces that overlap or leave a
///   gap, a piece of another dtype or shape than the directory says.
/// \error kBadInput, one line: file, offset or key, what was expected and what was found;
/// kUnsupported
///   for DCP of use_collectives=False and for its shards of safetensors.
Result<StoredCheckpoint> OpenStored(const std::string& path, Damage* damage = nullptr);

// The formats; each as OpenStored.
/// \param index  the name of a directory's index.
Result<StoredCheckpoint> OpenSafetensors(const std::string& path, Damage* damage,
                                         const std::string& index);
Result<StoredCheckpoint> OpenSafetensors(const std::string& path, Damage* damage);
Result<StoredCheckpoint> OpenDcp(const std::string& directory, Damage* damage);
Result<StoredCheckpoint> OpenTorchSave(const std::string& path, Damage* damage);

/// Whether torch.save may have written a file of this name: .pt, .pth, .bin, .ckpt.
bool IsNamedAsTorchSave(const std::string& name);

/// The same, or as safetensors.
inline bool IsNamedAsWeights(const std::string& name) {
  return IsNamedAsTorchSave(name) || name.ends_with(".safetensors");
}

/// Whether a directory has files that torch.save may have written, by their names.
bool HoldsTorchSave(const std::string& directory);

bool HoldsDcpOrSafetensors(const std::string& directory);

/// Whether a directory has files of a format that is known, complete or not, by their names alone.
/// One that cannot be listed may have.
bool LooksLikeCheckpoint(const std::string& directory);

/// Sorts the chunks by offsets. \error kBadInput, naming `where` and the tensor, unless they tile
/// the shape.
Status CheckTiling(const std::string& where, StoredTensor& tensor);

/// Makes tensors of the shards that ranks saved in files of their own. Shards of the same elements
/// are copies of each other. \error kBadInput: the shards of a tensor do not tile it, or do not
/// have one dtype and shape.
Status PutShardsTogether(const std::string& where, StoredCheckpoint& checkpoint, Damage* damage);

/// Sorts tensors and values by name. \error kBadInput if two have the same.
Status SortByName(const std::string& where, StoredCheckpoint& checkpoint);

}  // namespace shardproof::formats
