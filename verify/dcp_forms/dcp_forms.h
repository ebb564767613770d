// A synthetic checkpoint as torch.distributed.checkpoint (DCP) has it, by a writer that shares
// nothing with the pipeline's: chunks of any grid, in any order and file, and pickles and archives
// of every form. What it is made of can be changed before it is put together.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/case/case.h"
#include "verify/dcp_forms/archive_forms.h"
#include "verify/dcp_forms/pickle_forms.h"
#include "verify/oracle/safetensors_writer.h"

namespace shardproof::dcp_forms {

inline constexpr const char* kMetadataName = ".metadata";

/// One archive: a chunk of a tensor, or a value.
struct Item {
  std::vector<int64_t> offsets, sizes;  ///< of a chunk
  Py content;                           ///< what its pickle says
  std::string folder;                   ///< of the archive's members
  std::string storage;                  ///< the bytes that the pickle's tensor is a view of
  std::string archive;                  ///< all of it; made by Build
  std::string file;                     ///< that it lies in; what follows, too, by LayOut
  uint64_t offset = 0;
};

struct Entry {
  std::string key;
  const oracle::DtypeInfo* dtype = nullptr;  ///< null: a value, of one item
  std::vector<int64_t> shape;
  std::vector<Item> items;
  std::vector<std::string> path = {};  ///< of what is beside the model; empty: it is of the model
};

/// A checkpoint, taken apart.
struct Dcp {
  uint64_t seed = 0;
  bool is_nested = false;  ///< whether the model is the part "model" of what was saved
  std::vector<Entry> entries;
  std::map<std::string, std::string> files = {};  ///< by name: those with items, made by LayOut
};

/// The checkpoint that a synthetic Case's tensors make: chunks and what is in them.
/// \error kBadInput if the Case is none that a checkpoint can be made of.
Result<Dcp> TakeApart(const Case& test_case);

/// The archives of the items.
void Build(Dcp& dcp);

/// Puts the archives into files.
void LayOut(Dcp& dcp);

/// What .metadata says: a Metadata. Its state is a dict of state_dict_metadata, storage_data, ....
Py MetadataOf(const Dcp& dcp);

/// The bytes of .metadata.
std::string MetadataText(const Dcp& dcp, const Py& metadata);

/// Makes a directory of it. \error likewise; kFailed if it cannot be written.
Status WriteDcp(const Case& test_case, const std::string& directory);

}  // namespace shardproof::dcp_forms
