#include "verify/evidence/line_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace shardproof {
namespace {

constexpr size_t kChunkBytes = 64u << 10;

/// Opens a regular file, and nothing that could be waited for. \returns null with the reason.
std::FILE* OpenFile(const std::string& path, std::string& failure) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat what {};
  if (fd < 0 || ::fstat(fd, &what) != 0) {
    failure = std::strerror(errno);
  } else if (S_ISDIR(what.st_mode)) {
    failure = std::strerror(EISDIR);
  } else if (!S_ISREG(what.st_mode)) {
    failure = "is no regular file";
  } else if (std::FILE* file = ::fdopen(fd, "rb")) {
    return file;
  } else {
    failure = std::strerror(errno);
  }
  if (fd >= 0) ::close(fd);
  return nullptr;
}

}  // namespace

LineReader::LineReader(const std::string& path) : file_(OpenFile(path, failure_)) {}

LineReader::~LineReader() {
  if (file_ != nullptr) std::fclose(file_);
}

bool LineReader::Next(std::string& line) {
  size_t searched = begin_;
  while (failure_.empty()) {
    const size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos) {
      line.assign(buffer_, begin_, end - begin_);
      begin_ = end + 1;
      ++number_;
      return true;
    }
    if (at_end_) {
      torn_ = begin_ < buffer_.size();
      return false;
    }
    buffer_.erase(0, begin_);
    begin_ = 0;
    searched = buffer_.size();
    if (searched > kLineBytesMax) {
      failure_ = fmt::format("line {} is longer than {} bytes", number_ + 1, kLineBytesMax);
      return false;
    }
    buffer_.resize(searched + kChunkBytes);
    const size_t read = std::fread(buffer_.data() + searched, 1, kChunkBytes, file_);
    buffer_.resize(searched + read);
    if (std::ferror(file_)) failure_ = std::strerror(errno);
    at_end_ = read < kChunkBytes;
  }
  return false;
}

bool ReadWholeFile(const std::string& path, size_t bytes_max, std::string& text,
                   std::string& failure) {
  std::FILE* file = OpenFile(path, failure);
  if (file == nullptr) return false;
  text.clear();
  size_t read = kChunkBytes;
  while (read == kChunkBytes && text.size() <= bytes_max) {
    const size_t before = text.size();
    text.resize(before + kChunkBytes);
    read = std::fread(text.data() + before, 1, kChunkBytes, file);
    text.resize(before + read);
  }
  if (std::ferror(file)) failure = std::strerror(errno);
  if (text.size() > bytes_max) failure = fmt::format("expected at most {} bytes", bytes_max);
  std::fclose(file);
  return failure.empty();
}

}  // namespace shardproof
