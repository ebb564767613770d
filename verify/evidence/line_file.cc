#include "verify/evidence/line_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace shardproof {
namespace {

// The system's reason, or "" once all of `text` is written. One call is the rule; a short write (a
// nearly full disk) is followed up to learn the reason.
std::string WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return std::strerror(errno);
    text.remove_prefix(static_cast<size_t>(written));
  }
  return "";
}

/// Into what is there already and is no file: a device or a pipe, which must not be replaced.
Status WriteThrough(const std::string& path, std::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  std::string reason = fd < 0 ? std::strerror(errno) : WriteAll(fd, text);
  if (fd >= 0 && close(fd) != 0 && reason.empty()) reason = std::strerror(errno);
  if (reason.empty()) return Ok();
  return BadInput(fmt::format("{}: writing {} bytes: {}", path, text.size(), reason));
}

}  // namespace

Result<std::unique_ptr<LineFile>> LineFile::Create(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return BadInput(fmt::format("evidence {}: {}", path, std::strerror(errno)));
  return std::unique_ptr<LineFile>(new LineFile(path, fd));
}

LineFile::~LineFile() { close(fd_); }

Status LineFile::Append(std::string_view line) {
  std::string text;
  text.reserve(line.size() + 1);
  text.append(line);
  text += '\n';
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_.empty()) {
    const std::string reason = WriteAll(fd_, text);
    if (!reason.empty()) {
      failure_ = fmt::format("evidence {}: writing {} bytes as line {}: {}", path_, text.size(),
                             line_count_ + 1, reason);
    }
  }
  if (!failure_.empty()) return BadInput(failure_);
  ++line_count_;
  return Ok();
}

uint64_t LineFile::line_count() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return line_count_;
}

Status WriteFileAtomically(const std::string& path, std::string_view text) {
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) return WriteThrough(path, text);
  std::string temporary = path + ".XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return BadInput(fmt::format("{}: {}", path, std::strerror(errno)));
  std::string reason = WriteAll(fd, text);
  // mkostemp makes the file private; a report is for everybody who may see the directory.
  const mode_t mask = umask(0);
  umask(mask);
  if (reason.empty() && fchmod(fd, 0666 & ~mask) != 0) reason = std::strerror(errno);
  if (reason.empty() && fsync(fd) != 0) reason = std::strerror(errno);
  if (close(fd) != 0 && reason.empty()) reason = std::strerror(errno);
  if (reason.empty() && rename(temporary.c_str(), path.c_str()) != 0) {
    reason = std::strerror(errno);
  }
  if (reason.empty()) return Ok();
  unlink(temporary.c_str());
  return BadInput(fmt::format("{}: writing {} bytes: {}", path, text.size(), reason));
}

}  // namespace shardproof
