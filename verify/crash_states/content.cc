#include "verify/crash_states/content.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace shardproof::crash {
namespace {

constexpr int64_t kZerosBytes = 4096;
constexpr std::array<char, kZerosBytes> kZeros{};

/// Walks the bytes of a content in pieces, each within one extent or one hole.
class Cursor {
 public:
  explicit Cursor(const FileContent& content) : content_(content) {}

  bool AtEnd() const { return at_ == content_.size(); }
  /// Null in a hole.
  const char* data() const {
    return InExtent() ? Extent().data() + (at_ - Extent().start) : nullptr;
  }
  int64_t Left() const {
    if (InExtent()) return Extent().end() - at_;
    return (index_ < content_.extents().size() ? Extent().start : content_.size()) - at_;
  }
  void Advance(int64_t bytes) {
    at_ += bytes;
    if (index_ < content_.extents().size() && at_ == Extent().end()) ++index_;
  }

 private:
  const FileContent::Extent& Extent() const { return content_.extents()[index_]; }
  bool InExtent() const { return index_ < content_.extents().size() && at_ >= Extent().start; }

  const FileContent& content_;
  int64_t at_ = 0;
  size_t index_ = 0;
};

/// Of the words of a file, eight bytes each, that are not zero, and their places: holes cost
/// nothing, and where extents begin and end does not matter.
class WordHash {
 public:
  /// Bytes that begin at `start` in the file, behind those given before.
  void Feed(int64_t start, const char* data, int64_t bytes) {
    while (bytes > 0) {
      if (start / 8 != index_) Mix();
      index_ = start / 8;
      const int64_t taken = std::min(bytes, 8 - start % 8);
      std::memcpy(reinterpret_cast<char*>(&word_) + start % 8, data, taken);
      start += taken;
      data += taken;
      bytes -= taken;
    }
  }

  uint64_t Finish(int64_t size) {
    Mix();
    index_ = -1;
    word_ = static_cast<uint64_t>(size) + 1;
    Mix();
    return hash_;
  }

 private:
  void Mix() {
    if (word_ == 0) return;
    hash_ = (hash_ ^ word_) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(index_);
    hash_ ^= hash_ >> 32;
    word_ = 0;
  }

  uint64_t hash_ = 0x243f6a8885a308d3u;
  int64_t index_ = 0;
  uint64_t word_ = 0;
};

bool SameBytes(const char* a, const char* b, int64_t bytes) {
  if (a == b) return true;
  for (int64_t done = 0; done < bytes; done += kZerosBytes) {
    const int64_t count = std::min(kZerosBytes, bytes - done);
    const char* left = a == nullptr ? kZeros.data() : a + done;
    const char* right = b == nullptr ? kZeros.data() : b + done;
    if (std::memcmp(left, right, count) != 0) return false;
  }
  return true;
}

}  // namespace

void FileContent::Cut(int64_t begin, int64_t end) {
  auto at = std::partition_point(extents_.begin(), extents_.end(),
                                 [&](const Extent& extent) { return extent.end() <= begin; });
  if (at == extents_.end() || at->start >= end) return;
  if (at->start < begin) {
    Extent behind = *at;
    at->length = begin - at->start;
    behind.from += begin - behind.start;
    behind.length -= begin - behind.start;
    behind.start = begin;
    at = extents_.insert(at + 1, std::move(behind));
  }
  auto last = at;
  while (last != extents_.end() && last->end() <= end) ++last;
  if (last != extents_.end() && last->start < end) {
    last->from += end - last->start;
    last->length -= end - last->start;
    last->start = end;
  }
  extents_.erase(at, last);
}

void FileContent::Write(int64_t offset, const SharedBytes& bytes, int64_t from, int64_t to) {
  if (from >= to) return;
  hashed_ = false;
  const int64_t length = to - from;
  Cut(offset, offset + length);
  const auto at = std::partition_point(extents_.begin(), extents_.end(),
                                       [&](const Extent& extent) { return extent.start < offset; });
  extents_.insert(at, {offset, length, bytes, from});
  size_ = std::max(size_, offset + length);
}

void FileContent::Resize(int64_t size) {
  hashed_ = false;
  if (size < size_) Cut(size, size_);
  size_ = size;
}

bool FileContent::IsWritten(int64_t begin, int64_t end) const {
  for (const Extent& extent : extents_) {
    if (extent.end() <= begin) continue;
    if (extent.start > begin) return false;
    begin = extent.end();
    if (begin >= end) return true;
  }
  return false;
}

std::string FileContent::Text() const {
  std::string text(size_, '\0');
  for (const Extent& extent : extents_) {
    std::memcpy(text.data() + extent.start, extent.data(), extent.length);
  }
  return text;
}

uint64_t FileContent::Hash() const {
  if (hashed_) return hash_;
  WordHash hash;
  for (const Extent& extent : extents_) hash.Feed(extent.start, extent.data(), extent.length);
  hash_ = hash.Finish(size_);
  hashed_ = true;
  return hash_;
}

bool FileContent::operator==(const FileContent& other) const {
  if (size_ != other.size_) return false;
  Cursor a(*this);
  Cursor b(other);
  while (!a.AtEnd()) {
    const int64_t bytes = std::min(a.Left(), b.Left());
    if (!SameBytes(a.data(), b.data(), bytes)) return false;
    a.Advance(bytes);
    b.Advance(bytes);
  }
  return true;
}

}  // namespace shardproof::crash
