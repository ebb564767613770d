// Archives of tar, as GNU tar, Python and others write them: POSIX.1-1988 and 2001 (pax), and
// GNU's.
#pragma once

#include <memory>

#include "verify/oracle/input_file.h"

namespace shardproof::formats {

/// The files of an archive that lies in `file` from its first byte to its last. A link to another
/// file of the archive is that file again. \error kBadInput naming file, offset, what was expected
/// and what was found: cut short, a wrong checksum, a name that leads out of the archive or is
/// there twice, a link to what is not in it, a device.
Result<oracle::Tree> ReadTar(const std::shared_ptr<const oracle::InputFile>& file);

/// Whether its first bytes are those of such an archive.
bool IsTar(const oracle::InputFile& file);

/// A part of `file` as a file of its own.
oracle::TreeFile PartOf(std::shared_ptr<const oracle::InputFile> file, uint64_t start,
                        uint64_t bytes);

}  // namespace shardproof::formats
