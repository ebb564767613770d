// ZIP archives. As torch.save writes them, nothing is compressed, so that every entry lies in the
// file as it is. APPNOTE.TXT 6.3.10 is the format's description.
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
  /// CRC-32 as the archive has it. 0 where torch wrote none: told so for the whole archive
  /// (set_crc32_options), or of storages that were to be filled later (skip_data).
  uint32_t crc = 0;

  bool is_deflated = false;
  uint64_t stored = 0;  ///< bytes in the archive; `length` if it is not deflated

  /// Whether there is something that its bytes can be held against.
  bool HasCrc() const { return crc != 0; }
};

/// Who wrote an archive, and so what may be in it.
enum class ZipOf {
  kTorch,  ///< torch.save: no folders, and nothing is compressed
  kFiles,  ///< somebody, of files: folders are passed over, and entries may be deflated
};

/// The entries of the archive that is bytes [start, start + length) of `file`, in the order of its
/// directory.
/// \error kBadInput naming file, offset, what was expected and found: no archive, one cut short,
/// with
///   entries compressed otherwise, encrypted, links, twice there, overlapping or outside of it,
///   more than 16 Mi entries.
Result<std::vector<ZipEntry>> ReadZip(const oracle::InputFile& file, uint64_t start,
                                      uint64_t length, ZipOf of = ZipOf::kTorch);

/// That an entry's bytes are not those of its CRC-32: one line.
/// \param of  what it is of, " of tensor 'w'", if that is known.
std::string CrcText(const std::string& path, const ZipEntry& entry, const std::string& of,
                    uint32_t found);

}  // namespace shardproof::formats
