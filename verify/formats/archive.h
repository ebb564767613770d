// Checkpoints that lie in an archive or behind a URL: mounted, and then read as a directory.
#pragma once

#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/formats/stored.h"

namespace shardproof::formats {

/// If `path` is a URL, a directory of Orbax, or an archive of a checkpoint's files (tar, tar.gz, a
/// ZIP that torch.save did not write), mounts what is in it there. Does nothing to other paths, nor
/// to what is mounted. \error kBadInput naming what was expected and found; kUnsupported for URLs
/// of other kinds, or if Python lacks what reads them.
Status MountPlace(const std::string& path);

bool IsNamedAsArchive(const std::string& name);

/// Mounts the files of an archive at the path where it lies; nothing if it is none.
Status MountArchive(const std::string& path);

/// Mounts what lies below a URL. \error as above
Status MountUrl(const std::string& url);

bool IsUrl(const std::string& path);

/// Whether Orbax wrote a directory, by the names in it; wherever it is.
bool HoldsOrbax(const std::string& directory);

/// One in the file system. Its tensors are mounted as a file of safetensors.
bool IsOrbax(const std::string& path);
Status MountOrbax(const std::string& path);
Result<StoredCheckpoint> OpenOrbax(const std::string& path, Damage* damage);

/// How the program is started that reads URLs; they are not read before it is said.
void ReadUrlsBy(std::vector<std::string> words);
void ReadOrbaxBy(std::vector<std::string> words);

/// What has changed behind the URLs since they were mounted. \error kBadInput naming the first
Status CheckUrls();

}  // namespace shardproof::formats
