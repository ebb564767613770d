#include "verify/crash_states/open_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "verify/trace/tracee.h"

namespace shardproof::crash {

std::optional<OpenFile> LookAt(pid_t thread, int descriptor) {
  OpenFile file;
  const auto path = trace::PathOfDescriptor(thread, descriptor);
  if (!path || !path->starts_with("/")) return std::nullopt;
  file.path = *path;
  struct stat facts {};
  const std::string link = fmt::format("/proc/{}/fd/{}", thread, descriptor);
  if (::stat(link.c_str(), &facts) != 0) return std::nullopt;
  // A directory that is removed may keep a link to itself; the kernel then ends its path so too.
  file.has_name = facts.st_nlink > 0 && !(S_ISDIR(facts.st_mode) && path->ends_with(" (deleted)"));
  file.is_directory = S_ISDIR(facts.st_mode);
  file.is_regular = S_ISREG(facts.st_mode);
  file.size = facts.st_size;
  file.device = facts.st_dev;
  file.inode = facts.st_ino;
  std::ifstream info(fmt::format("/proc/{}/fdinfo/{}", thread, descriptor));
  std::string word;
  int64_t flags = 0;
  while (info >> word) {
    if (word == "pos:") info >> file.position;
    if (word == "flags:") info >> std::oct >> flags >> std::dec;
  }
  file.can_write = (flags & O_ACCMODE) != O_RDONLY;
  file.appends = (flags & O_APPEND) != 0;
  file.syncs = (flags & O_DSYNC) != 0;
  return file;
}

Result<std::string> ReadBack(pid_t thread, int descriptor, int64_t offset, int64_t count) {
  const std::string link = fmt::format("/proc/{}/fd/{}", thread, descriptor);
  const int file = ::open(link.c_str(), O_RDONLY | O_CLOEXEC);
  std::string bytes(static_cast<size_t>(count), '\0');
  ssize_t got = file < 0 ? -1 : 0;
  for (size_t done = 0; file >= 0 && done < bytes.size(); done += static_cast<size_t>(got)) {
    got = ::pread(file, bytes.data() + done, bytes.size() - done,
                  offset + static_cast<int64_t>(done));
    if (got <= 0) break;
  }
  const int error_number = errno;
  if (file >= 0) ::close(file);
  if (got > 0 || count == 0) return bytes;
  return Failed(fmt::format("reading what was written: {}",
                            got == 0 ? "the file ends" : std::strerror(error_number)));
}

}  // namespace shardproof::crash
