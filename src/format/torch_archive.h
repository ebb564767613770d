// What torch.save writes of one tensor: a ZIP archive of a pickle and a storage, among others in a
// file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "src/core/result.h"

namespace shardproof {

struct ReadItem {
  std::string_view pickle;   ///< in the archive
  uint64_t data_offset = 0;  ///< of its one tensor's storage, within the archive, bytes
  uint64_t data_bytes = 0;
};

/// Opens the archive that is the `bytes` bytes at `data`. Every number in it is checked.
/// \param where  says it, if it comes to that: there are many archives, and few are wrong.
/// \error kBadInput if it is compressed, encrypted or of a big-endian machine, has no pickle or one
///   of more than 64 MiB, or has anything behind it.
/// \source APPNOTE.TXT 6.3.10, 4.3
Result<ReadItem> OpenTorchItem(const std::byte* data, uint64_t bytes,
                               const std::function<std::string()>& where);

}  // namespace shardproof
