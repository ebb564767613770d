// What a values run puts around the file system; as poison does in memory, it makes what was left
// undone show.
#pragma once

#include <memory>

#include "src/storage/file_system.h"

namespace shardproof {

/// What is written to a file and not synced before the file is closed is lost: bytes 0xff are in
/// its place, as they may be after a power failure. Whoever leaves syncing to another rank loses it
/// too: that one may have been done before. So it is with names: those made in a directory that is
/// renamed before it was synced are gone; a rename whose directory is not synced is taken back in
/// the end, and an exchange that is not, before what went by one of the two names is removed, has
/// not taken place by then. What replaced a file is gone, too, and the file is back.
std::shared_ptr<FileSystem> LoseUnsynced(std::shared_ptr<FileSystem> inner);

}  // namespace shardproof
