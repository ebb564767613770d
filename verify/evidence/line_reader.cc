#include "verify/evidence/line_reader.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace shardproof {
namespace {

constexpr size_t kChunkBytes = 64u << 10;

}  // namespace

LineReader::LineReader(const std::string& path) : file_(std::fopen(path.c_str(), "rbe")) {
  if (file_ == nullptr) failure_ = std::strerror(errno);
}

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
  std::FILE* file = std::fopen(path.c_str(), "rbe");
  if (file == nullptr) {
    failure = std::strerror(errno);
    return false;
  }
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
