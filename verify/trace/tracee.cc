#include "verify/trace/tracee.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

namespace shardproof::trace {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{64} << 20;
constexpr uint64_t kPageBytes = 4096;

std::optional<std::string> LinkTarget(const std::string& link) {
  std::array<char, PATH_MAX + 32> target;
  const ssize_t length = ::readlink(link.c_str(), target.data(), target.size());
  if (length < 0) return std::nullopt;
  return std::string(target.data(), static_cast<size_t>(length));
}

std::optional<std::string> Canonical(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr),
                                                         &std::free);
  if (!real) return std::nullopt;
  return std::string(real.get());
}

/// /proc/self is the thread's own, not this process's.
std::string OfThread(const std::string& path, pid_t thread) {
  for (const std::string self : {"/proc/self", "/proc/thread-self"}) {
    if (path == self || path.starts_with(self + "/")) {
      return fmt::format("/proc/{}{}", thread, path.substr(self.size()));
    }
  }
  return path;
}

}  // namespace

bool ReadBytes(pid_t thread, uint64_t address, char* to, uint64_t count) {
  while (count > 0) {
    const uint64_t piece = std::min(count, kPieceBytes);
    const iovec ours{to, piece};
    const iovec theirs{reinterpret_cast<void*>(address), piece};  // NOLINT: their address
    const ssize_t got = ::process_vm_readv(thread, &ours, 1, &theirs, 1, 0);
    if (got <= 0) return false;
    to += got;
    address += static_cast<uint64_t>(got);
    count -= static_cast<uint64_t>(got);
  }
  return true;
}

std::optional<std::string> ReadText(pid_t thread, uint64_t address, size_t bytes_max) {
  std::string text;
  std::array<char, kPageBytes> page;
  while (text.size() < bytes_max) {
    // Up to the next page, since what follows need not be mapped.
    const uint64_t count = std::min(kPageBytes - address % kPageBytes, bytes_max - text.size());
    if (!ReadBytes(thread, address, page.data(), count)) return std::nullopt;
    const char* end = std::find(page.data(), page.data() + count, '\0');
    text.append(page.data(), static_cast<size_t>(end - page.data()));
    if (end != page.data() + count) return text;
    address += count;
  }
  return std::nullopt;
}

std::optional<std::string> PathOfDescriptor(pid_t thread, int descriptor) {
  return LinkTarget(fmt::format("/proc/{}/fd/{}", thread, descriptor));
}

std::optional<std::string> ResolvePath(pid_t thread, int directory, const std::string& path) {
  std::string whole = OfThread(path, thread);
  if (!whole.starts_with("/")) {
    const auto base = directory == AT_FDCWD ? LinkTarget(fmt::format("/proc/{}/cwd", thread))
                                            : PathOfDescriptor(thread, directory);
    if (!base) return std::nullopt;
    if (path.empty()) return base;
    whole = *base + "/" + whole;
  }
  while (whole.size() > 1 && whole.ends_with('/')) whole.pop_back();
  const size_t slash = whole.rfind('/');
  const std::string name = whole.substr(slash + 1);
  if (name.empty() || name == "." || name == "..") return Canonical(whole).value_or(whole);
  const auto parent = Canonical(slash == 0 ? "/" : whole.substr(0, slash));
  if (!parent) return whole;
  return (*parent == "/" ? "" : *parent) + "/" + name;
}

std::optional<std::string> ResolvePathAt(pid_t thread, int directory, uint64_t address) {
  const auto path = ReadText(thread, address);
  if (!path) return std::nullopt;
  return ResolvePath(thread, directory, *path);
}

}  // namespace shardproof::trace
