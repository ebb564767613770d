#include "verify/rank/pages.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

namespace shardproof {
namespace {

// Bits of a pagemap entry: kernel documentation, admin-guide/mm/pagemap.rst.
constexpr uint64_t kPresent = uint64_t{1} << 63;
constexpr uint64_t kSwapped = uint64_t{1} << 62;
constexpr uint64_t kFileOrShared = uint64_t{1} << 61;

}  // namespace

std::optional<uint64_t> CommittedBytes(const void* data, size_t bytes) {
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uint64_t>(data);
  const uint64_t first = (address + page - 1) / page;
  const uint64_t last = (address + bytes) / page;
  if (bytes == 0 || last <= first) return 0;
  const int fd = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  uint64_t committed = 0;
  std::array<uint64_t, 512> entries;
  for (uint64_t at = first; at < last;) {
    const uint64_t wanted = std::min<uint64_t>(entries.size(), last - at);
    const ssize_t got = ::pread(fd, entries.data(), wanted * 8, static_cast<off_t>(at * 8));
    if (got <= 0) {
      ::close(fd);
      return std::nullopt;
    }
    for (ssize_t i = 0; i < got / 8; ++i) {
      const bool here = (entries[i] & (kPresent | kSwapped)) != 0;
      if (here && (entries[i] & kFileOrShared) == 0) committed += page;
    }
    at += got / 8;
  }
  ::close(fd);
  return committed;
}

uint64_t AnonymousBytes() {
  const int fd = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  std::array<char, 4096> text{};
  const ssize_t got = ::read(fd, text.data(), text.size() - 1);
  ::close(fd);
  const char* line = got > 0 ? std::strstr(text.data(), "RssAnon:") : nullptr;
  return line == nullptr ? 0 : std::strtoull(line + 8, nullptr, 10) * 1024;
}

}  // namespace shardproof
