#include "verify/formats/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "verify/oracle/dtype.h"
#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

using oracle::InputFile;
using oracle::LoadBits;
using oracle::Printable;
using oracle::Quote;

constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;
constexpr uint32_t kCentralSignature = 0x02014b50;
constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint64_t kLocator64Bytes = 20;
constexpr uint64_t kCentralBytes = 46;
constexpr uint64_t kLocalBytes = 30;
constexpr uint64_t kCommentBytesMax = 0xffff;
constexpr uint64_t kWindowBytes = 4096;  // read at once: what is looked for next is mostly near
constexpr uint64_t kDirectoryBytesMax = uint64_t{1} << 30;
constexpr uint64_t kEntriesMax = uint64_t{16} << 20;
constexpr uint16_t kZip64Extra = 1;
constexpr uint64_t kDeflated = 8;       // of its methods
constexpr uint32_t kIn64 = 0xffffffff;  // the value stands in the ZIP64 part

uint64_t At(std::string_view bytes, size_t offset, int width) {
  return LoadBits(bytes.data() + offset, width);
}

class ZipReader {
 public:
  ZipReader(const InputFile& file, uint64_t start, uint64_t length, ZipOf of)
      : file_(file), start_(start), length_(length), of_(of) {}

  Result<std::vector<ZipEntry>> Run() {
    if (start_ > file_.size() || length_ > file_.size() - start_) {
      return BadInput(
          fmt::format("{}: expected an archive at bytes [{}, +{}), the file has {} bytes",
                      Printable(file_.path()), start_, length_, file_.size()));
    }
    SP_TRY(FindDirectory());
    SP_ASSIGN(const std::string directory, Read(directory_start_, directory_bytes_));
    std::vector<ZipEntry> entries;
    uint64_t at = 0;
    for (uint64_t i = 0; i < entry_count_; ++i) {
      SP_ASSIGN(ZipEntry entry, ReadEntry(directory, at));
      if (!entry.name.ends_with('/')) entries.push_back(std::move(entry));
    }
    if (at != directory.size())
      return Wrong(directory_start_ + at, "the directory's end", "more bytes");
    SP_TRY(CheckApart(entries));
    return entries;
  }

 private:
  /// `offset` is within the archive; what is told is the file's.
  Error Wrong(uint64_t offset, const std::string& expected, const std::string& found) const {
    return BadInput(fmt::format("{}: zip, offset {}: expected {}, found {}",
                                Printable(file_.path()), start_ + offset, expected, found));
  }

  Result<std::string> Read(uint64_t offset, uint64_t bytes) {
    if (offset > length_ || bytes > length_ - offset) {
      return Wrong(offset, fmt::format("{} bytes", bytes),
                   fmt::format("an archive of {}", length_));
    }
    const uint64_t window_end = window_start_ + window_.size();
    if (offset < window_start_ || offset + bytes > window_end) {
      window_.resize(std::max(bytes, std::min(kWindowBytes, length_ - offset)));
      SP_TRY(file_.ReadAt(start_ + offset, window_.size(), window_.data()));
      window_start_ = offset;
    }
    return window_.substr(offset - window_start_, bytes);
  }

  Status FindDirectory() {
    // Hardly any archive has a comment.
    const uint64_t most = std::min(length_, kEndBytes + kCommentBytesMax);
    SP_ASSIGN(const bool is_near, FindEnd(std::min(most, kWindowBytes)));
    if (is_near) return Ok();
    SP_ASSIGN(const bool is_there, FindEnd(most));
    if (is_there) return Ok();
    return Wrong(length_ - most, "the end of a ZIP archive",
                 length_ == 0 ? "nothing" : "none: cut short, or no archive");
  }

  /// Whether the archive's last bytes have its end, which then says where the directory is.
  Result<bool> FindEnd(uint64_t tail_bytes) {
    const uint64_t tail_start = length_ - tail_bytes;
    SP_ASSIGN(const std::string tail, Read(tail_start, tail_bytes));
    for (uint64_t i = tail_bytes < kEndBytes ? 0 : tail_bytes - kEndBytes + 1; i-- > 0;) {
      if (At(tail, i, 4) != kEndSignature || At(tail, i + 20, 2) != tail_bytes - i - kEndBytes)
        continue;
      entry_count_ = At(tail, i + 10, 2);
      if (At(tail, i + 4, 4) != 0 || At(tail, i + 8, 2) != entry_count_) {
        return Wrong(tail_start + i, "an archive on one disk", "several");
      }
      directory_bytes_ = At(tail, i + 12, 4);
      directory_start_ = At(tail, i + 16, 4);
      uint64_t end = tail_start + i;
      if (end >= kLocator64Bytes) {
        SP_ASSIGN(const bool is_64, FindDirectory64(end));
        if (is_64) end -= kLocator64Bytes + kEnd64Bytes;
      }
      if (directory_start_ > end || directory_bytes_ != end - directory_start_) {
        return Wrong(tail_start + i, fmt::format("a directory that ends at {}", start_ + end),
                     fmt::format("[{}, +{})", directory_start_, directory_bytes_));
      }
      if (directory_bytes_ > kDirectoryBytesMax || entry_count_ > kEntriesMax ||
          entry_count_ * kCentralBytes > directory_bytes_) {
        return Wrong(tail_start + i, fmt::format("a directory of at most {} entries", kEntriesMax),
                     fmt::format("{} in {} bytes", entry_count_, directory_bytes_));
      }
      return true;
    }
    return false;
  }

  Result<bool> FindDirectory64(uint64_t end) {
    SP_ASSIGN(const std::string locator, Read(end - kLocator64Bytes, kLocator64Bytes));
    if (At(locator, 0, 4) != kLocator64Signature) return false;
    const uint64_t at = At(locator, 8, 8);
    if (end < kLocator64Bytes + kEnd64Bytes || at != end - kLocator64Bytes - kEnd64Bytes) {
      return Wrong(end - kLocator64Bytes, "the ZIP64 end right before its locator",
                   fmt::format("offset {}", at));
    }
    SP_ASSIGN(const std::string record, Read(at, kEnd64Bytes));
    if (At(record, 0, 4) != kEnd64Signature) return Wrong(at, "the ZIP64 end", "something else");
    entry_count_ = At(record, 32, 8);
    directory_bytes_ = At(record, 40, 8);
    directory_start_ = At(record, 48, 8);
    return true;
  }

  Result<ZipEntry> ReadEntry(const std::string& directory, uint64_t& at) {
    const uint64_t begin = directory_start_ + at;
    if (directory.size() - at < kCentralBytes || At(directory, at, 4) != kCentralSignature) {
      return Wrong(begin, "an entry of the directory", "none");
    }
    const std::string_view fields = std::string_view(directory).substr(at, kCentralBytes);
    const uint64_t name_bytes = At(fields, 28, 2);
    const uint64_t extra_bytes = At(fields, 30, 2);
    const uint64_t all = kCentralBytes + name_bytes + extra_bytes + At(fields, 32, 2);
    if (all > directory.size() - at)
      return Wrong(begin, "an entry within the directory", "one beyond its end");
    ZipEntry entry;
    entry.name = directory.substr(at + kCentralBytes, name_bytes);
    entry.crc = static_cast<uint32_t>(At(fields, 16, 4));
    entry.stored = At(fields, 20, 4);
    entry.length = At(fields, 24, 4);
    uint64_t local = At(fields, 42, 4);
    const std::string_view extra =
        std::string_view(directory).substr(at + kCentralBytes + name_bytes, extra_bytes);
    SP_TRY(ReadExtra64(begin, extra, entry.length, entry.stored, local));
    if (of_ == ZipOf::kFiles && entry.name.ends_with('/')) {
      at += all;
      return entry;
    }
    constexpr uint64_t kFormatMask = 0xf000, kLink = 0xa000;  // of a file's mode in Unix
    if (of_ == ZipOf::kFiles && (At(fields, 38, 4) >> 16 & kFormatMask) == kLink)
      return Wrong(begin, "files and folders", "a link: " + Quote(entry.name));
    // miniz, which torch reads with, takes such an entry for a folder and reads nothing of it.
    if ((At(fields, 38, 4) & 0x10) != 0 || entry.name.ends_with('/')) {
      return Wrong(begin, "a file", "a folder: " + Quote(entry.name));
    }
    if (At(fields, 34, 2) != 0) return Wrong(begin, "an archive on one disk", Quote(entry.name));
    if ((At(fields, 8, 2) & 1) != 0)
      return Wrong(begin, "an entry that is not encrypted", Quote(entry.name));
    entry.is_deflated = of_ == ZipOf::kFiles && At(fields, 10, 2) == kDeflated;
    const bool is_plain = At(fields, 10, 2) == 0 && entry.stored == entry.length;
    if (!is_plain && !entry.is_deflated) {  // as TorchScript's code is; torch reads it
      return Unsupported(
          Wrong(begin, "an entry that is not compressed", Quote(entry.name)).message);
    }
    SP_ASSIGN(entry.offset, FindData(entry, local));
    at += all;
    return entry;
  }

  /// Takes from the ZIP64 part what did not fit the fields, in the format's order.
  Status ReadExtra64(uint64_t begin, std::string_view extra, uint64_t& length, uint64_t& stored,
                     uint64_t& local) const {
    while (extra.size() >= 4) {
      const uint64_t bytes = At(extra, 2, 2);
      if (bytes > extra.size() - 4)
        return Wrong(begin, "extra fields within the entry", "one beyond its end");
      std::string_view body = extra.substr(4, bytes);
      if (At(extra, 0, 2) == kZip64Extra) {
        for (uint64_t* field : {&length, &stored, &local}) {
          if (*field != kIn64) continue;
          if (body.size() < 8)
            return Wrong(begin, "8 bytes of a ZIP64 field", fmt::format("{}", body.size()));
          *field = At(body, 0, 8);
          body.remove_prefix(8);
        }
      }
      extra.remove_prefix(4 + bytes);
    }
    return Ok();
  }

  /// Where the entry's bytes begin: behind its local header, which must name the same entry.
  Result<uint64_t> FindData(const ZipEntry& entry, uint64_t local) {
    SP_ASSIGN(const std::string header, Read(local, kLocalBytes));
    const uint64_t name_bytes = At(header, 26, 2);
    if (At(header, 0, 4) != kLocalSignature || name_bytes != entry.name.size()) {
      return Wrong(local, "the header of " + Quote(entry.name), "another");
    }
    SP_ASSIGN(const std::string name, Read(local + kLocalBytes, name_bytes));
    if (name != entry.name) return Wrong(local, "the header of " + Quote(entry.name), Quote(name));
    const uint64_t method = entry.is_deflated ? kDeflated : 0;
    if (At(header, 8, 2) != method || (At(header, 6, 2) & 1) != 0) {
      return Wrong(local, "an entry neither compressed nor encrypted", Quote(name));
    }
    const uint64_t data = local + kLocalBytes + name_bytes + At(header, 28, 2);
    if (data > directory_start_ || entry.stored > directory_start_ - data) {
      return Wrong(local, fmt::format("{} to end before the directory", Quote(entry.name)),
                   fmt::format("{} bytes from {}", entry.stored, start_ + data));
    }
    return start_ + data;
  }

  Status CheckApart(const std::vector<ZipEntry>& entries) const {
    std::set<std::string_view> names;
    std::vector<const ZipEntry*> sorted;
    for (const ZipEntry& entry : entries) {
      if (!names.insert(entry.name).second)
        return Wrong(0, "every entry once", Quote(entry.name) + " twice");
      sorted.push_back(&entry);
    }
    std::sort(sorted.begin(), sorted.end(), [](const ZipEntry* a, const ZipEntry* b) {
      return a->offset < b->offset || (a->offset == b->offset && a->stored < b->stored);
    });
    for (size_t i = 1; i < sorted.size(); ++i) {
      if (sorted[i - 1]->offset + sorted[i - 1]->stored <= sorted[i]->offset) continue;
      return Wrong(sorted[i]->offset - start_, "entries that do not overlap",
                   Quote(sorted[i - 1]->name) + " and " + Quote(sorted[i]->name));
    }
    return Ok();
  }

  const InputFile& file_;
  uint64_t start_;
  uint64_t length_;
  ZipOf of_;
  uint64_t entry_count_ = 0;
  uint64_t directory_start_ = 0;
  uint64_t directory_bytes_ = 0;
  std::string window_;  ///< what was read last
  uint64_t window_start_ = 0;
};

}  // namespace

Result<std::vector<ZipEntry>> ReadZip(const InputFile& file, uint64_t start, uint64_t length,
                                      ZipOf of) {
  return ZipReader(file, start, length, of).Run();
}

std::string CrcText(const std::string& path, const ZipEntry& entry, const std::string& of,
                    uint32_t found) {
  return fmt::format("{}: entry {} at offset {}{}: expected CRC-32 {:08x}, found {:08x}",
                     Printable(path), Quote(entry.name), entry.offset, of, entry.crc, found);
}

}  // namespace shardproof::formats
