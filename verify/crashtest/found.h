// Which checkpoints lie in a directory.
#pragma once

#include <string>
#include <vector>

#include "verify/crash/disk.h"
#include "verify/crashtest/loader.h"

namespace shardproof::crashtest {

/// Each directory with a .metadata is one of DCP; the files of safetensors and of torch.save (.pt,
/// .pth, .bin, .ckpt) that another directory holds are one together. Sorted by path.
/// \param kind  only those: "dcp", "torch", "safetensors"; empty: all
std::vector<What> CheckpointsOf(const crash::Disk& disk, const std::string& kind);

/// Of `found` that at `path`, which may be a directory or one file. Nothing if there is none.
std::vector<What> At(const std::vector<What>& found, const std::string& path);

/// Whether any of its files is another on the two disks, or is on one alone.
bool Differs(const What& what, const crash::Disk& a, const crash::Disk& b);

}  // namespace shardproof::crashtest
