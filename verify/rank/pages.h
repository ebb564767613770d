// What the kernel says of this process's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace shardproof {

/// Bytes of [data, data + bytes) that lie on anonymous pages present in memory or in swap, counting
/// only pages that lie wholly inside, since the edge pages hold other things too. From
/// /proc/self/pagemap; file-backed pages do not count.
/// \returns nullopt if the kernel does not say.
std::optional<uint64_t> CommittedBytes(const void* data, size_t bytes);

/// Anonymous resident bytes of this process (RssAnon of /proc/self/status), or 0 if it cannot be
/// read.
uint64_t AnonymousBytes();

}  // namespace shardproof
