#include "verify/oracle/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "verify/oracle/quote.h"

namespace shardproof::oracle {
namespace {

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "something else";
}

}  // namespace

Result<std::shared_ptr<const InputFile>> InputFile::Of(const std::string& path, int descriptor) {
  struct stat opened = {};
  if (::fstat(descriptor, &opened) != 0 || !S_ISREG(opened.st_mode)) {
    ::close(descriptor);
    return BadInput(fmt::format("{}: expected a regular file, it was replaced while being opened",
                                Printable(path)));
  }
  return std::shared_ptr<const InputFile>(
      new InputFile(path, descriptor, static_cast<uint64_t>(opened.st_size)));
}

Result<std::shared_ptr<const InputFile>> InputFile::Open(const std::string& path) {
  if (const TreePlace place = FindInTrees(path); place.tree != nullptr) {
    const TreeFile* file = place.File();
    if (file == nullptr) {
      return BadInput(fmt::format("{}: expected a regular file, found {}", Printable(path),
                                  place.IsDirectory() ? "a directory" : "none"));
    }
    const std::shared_ptr<InputFile> opened(new InputFile(path, -1, file->bytes));
    opened->read_ = file->open();
    return std::shared_ptr<const InputFile>(opened);
  }
  // Looked at before it is opened: merely opening a device or a FIFO can have effects.
  struct stat before = {};
  if (::stat(path.c_str(), &before) != 0) {
    return BadInput(fmt::format("{}: cannot be opened: {}", Printable(path), std::strerror(errno)));
  }
  if (!S_ISREG(before.st_mode)) {
    return BadInput(fmt::format("{}: expected a regular file, found {}", Printable(path),
                                KindOf(before.st_mode)));
  }
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (descriptor < 0) {
    return BadInput(fmt::format("{}: cannot be opened: {}", Printable(path), std::strerror(errno)));
  }
  return Of(path, descriptor);
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status InputFile::ReadAt(uint64_t offset, uint64_t length, char* out) const {
  if (offset > size_ || length > size_ - offset) {
    return BadInput(fmt::format("{}: expected {} bytes at offset {}, the file has {} bytes",
                                Printable(path_), length, offset, size_));
  }
  if (read_) {
    const std::lock_guard lock(one_at_a_time_);
    return read_(offset, length, out);
  }
  while (length > 0) {
    const size_t wanted = static_cast<size_t>(std::min<uint64_t>(length, 1u << 30));
    const ssize_t got = ::pread(descriptor_, out, wanted, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return BadInput(fmt::format("{}: reading {} bytes at offset {}: {}", Printable(path_), wanted,
                                  offset, std::strerror(errno)));
    }
    if (got == 0) {
      return BadInput(fmt::format("{}: ends at offset {}: it had {} bytes when it was opened",
                                  Printable(path_), offset, size_));
    }
    out += got;
    offset += static_cast<uint64_t>(got);
    length -= static_cast<uint64_t>(got);
  }
  return Ok();
}

bool StaysInside(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\0') != std::string_view::npos) {
    return false;
  }
  for (const std::filesystem::path& part : std::filesystem::path(name)) {
    if (part == ".." || part == "." || part.empty()) return false;
  }
  return true;
}

Result<std::string> ReadWholeFile(const std::string& path, uint64_t bytes_max) {
  SP_ASSIGN(const std::shared_ptr<const InputFile> file, InputFile::Open(path));
  if (file->size() > bytes_max) {
    return BadInput(fmt::format("{}: expected at most {} bytes, found {}", Printable(path),
                                bytes_max, file->size()));
  }
  std::string text(file->size(), '\0');
  SP_TRY(file->ReadAt(0, text.size(), text.data()));
  return text;
}

}  // namespace shardproof::oracle
