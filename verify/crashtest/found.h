// Which checkpoints lie in a directory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "verify/crash_states/disk.h"
#include "verify/crashtest/loader.h"

namespace shardproof::crashtest {

/// Each directory with a .metadata is one of DCP; the files of safetensors and of torch.save (.pt,
/// .pth, .bin, .ckpt) that another directory holds are one together. A symbolic link to a directory
/// of one is one too, and so is a link to a file beside it. Sorted by path.
/// \param kind  only those: "dcp", "torch", "safetensors"; empty: all
std::vector<What> CheckpointsOf(const crash::Disk& disk, const std::string& kind);

/// Of `found` that at `path`, which may be a directory or one file. Nothing if there is none.
std::vector<What> At(const std::vector<What>& found, const std::string& path);

/// Whether it is found by a symbolic link.
bool IsByLink(const What& what, const crash::Disk& disk);

/// Without those that another of them leads to: a job loads what `latest` leads to. Of a link that
/// led there before too, what it leads to is left instead.
std::vector<What> Entrances(const std::vector<What>& changed, const crash::Disk& before,
                            const crash::Disk& after);

/// The same by way of a file of up to 4096 bytes that names it, and that is another on the two
/// disks. Nothing if there is none.
std::optional<What> ByName(const What& what, const crash::Disk& before, const crash::Disk& after);

/// What `named_by` names on a disk that holds `found`. Nothing if it names none of them.
std::optional<What> NamedBy(const std::string& named_by, const std::vector<What>& found,
                            const crash::Disk& disk);

/// Whether any of its files is another on the two disks, or is on one alone.
bool Differs(const What& what, const crash::Disk& a, const crash::Disk& b);

}  // namespace shardproof::crashtest
