// Saving as a directory of torch.distributed.checkpoint (DCP): every rank writes what it holds into
// a file of its own, and rank 0 besides .metadata, which says what lies where. Where everything
// lies follows from names, shapes, dtypes and placements: no rank asks another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/checkpoint/state_dict.h"
#include "src/contract/stages.h"
#include "src/format/torch_item.h"
#include "src/manifest/manifest.h"
#include "src/mesh/boxes.h"

namespace shardproof {

/// A box of a tensor, or a value, in a rank's file.
struct DcpItem {
  int64_t entry = 0;  ///< index into StateDict::tensors, or values
  bool is_tensor = true;
  Box box;  ///< of a tensor
  TorchItem item;
  uint64_t offset = 0;  ///< in the file, bytes
};

struct DcpFile {
  std::string name;  ///< "__0_0.distcp"
  std::vector<DcpItem> items;
  uint64_t size = 0;  ///< bytes
};

std::string DcpFileName(int64_t rank);

/// What `rank` writes: its boxes in the order of the state dict, of replicas the first rank's only;
/// rank 0 the values besides.
DcpFile PlanDcpFile(const StateDict& state, const Job& job, const Stages& stages, int64_t rank);

/// The pickle that is .metadata.
std::string DcpMetadata(const StateDict& state, const std::vector<DcpFile>& files);

/// Writes this rank's file into `directory`; durable on return. \returns what it adds to the
/// manifest.
Result<SaveDigests> WriteDcpFile(const StateDict& state, const DcpFile& planned,
                                 const Stages& stages, const std::string& directory, World& world);

}  // namespace shardproof
