// ZIP archives as torch.save writes them: nothing compressed, so that every entry lies in the file
// as it is. APPNOTE.TXT 6.3.10 is the format's description.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/oracle/input_file.h"

namespace shardproof::formats {

struct ZipEntry {
  std::string name;
  uint64_t offset = 0;  ///< of its first byte in the file, absolute
  uint64_t length = 0;  ///< bytes
  uint32_t crc = 0;     ///< CRC-32 as the archive has it; 0 where torch was told to write none
};

/// The entries of the archive that is bytes [start, start + length) of `file`, in the order of its
/// directory.
/// \error kBadInput naming file, offset, what was expected and found: no archive, one cut short,
/// with
///   entries compressed, encrypted, twice there, overlapping or outside of it, more than 16 Mi
///   entries.
Result<std::vector<ZipEntry>> ReadZip(const oracle::InputFile& file, uint64_t start,
                                      uint64_t length);

}  // namespace shardproof::formats
