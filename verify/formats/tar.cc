#include "verify/formats/tar.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

using oracle::InputFile;
using oracle::Printable;
using oracle::Quote;

constexpr uint64_t kBlockBytes = 512;
constexpr uint64_t kMagicOffset = 257;
constexpr uint64_t kExtraBytesMax = 1u << 20;  // of a long name, or of pax's records
constexpr size_t kTarEntriesMax = 1'000'000;

std::string_view Text(std::string_view block, size_t offset, size_t bytes) {
  const std::string_view field = block.substr(offset, bytes);
  return field.substr(0, field.find('\0'));
}

/// A number of a header: octal digits, or if the first bit is set, binary. nullopt: neither.
std::optional<uint64_t> Number(std::string_view field) {
  uint64_t number = 0;
  if ((static_cast<uint8_t>(field[0]) & 0x80) != 0) {
    for (size_t i = 1; i < field.size(); ++i) {
      if (number >> 55 != 0) return std::nullopt;
      number = number << 8 | static_cast<uint8_t>(field[i]);
    }
    return field[0] == '\x80' ? std::optional(number) : std::nullopt;
  }
  const size_t first = std::min(field.find_first_not_of(' '), field.size());
  const auto [end, error] =
      std::from_chars(field.data() + first, field.data() + field.size(), number, 8);
  const bool is_whole = end == field.data() + field.size() || *end == ' ' || *end == '\0';
  return error == std::errc() && is_whole ? std::optional(number) : std::nullopt;
}

bool HasItsChecksum(std::string_view block) {
  constexpr size_t kSum = 148, kSumBytes = 8;
  uint64_t sum = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    sum += i >= kSum && i < kSum + kSumBytes ? ' ' : static_cast<uint8_t>(block[i]);
  }
  return Number(block.substr(kSum, kSumBytes)) == sum;
}

class TarReader {
 public:
  explicit TarReader(const std::shared_ptr<const InputFile>& file) : file_(file) {}

  Result<oracle::Tree> Run() {
    std::string block(kBlockBytes, '\0');
    for (size_t count = 0; at_ < file_->size(); ++count) {
      if (file_->size() - at_ < kBlockBytes) return Wrong("a header of 512 bytes", "the end");
      SP_TRY(file_->ReadAt(at_, kBlockBytes, block.data()));
      if (block.find_first_not_of('\0') == std::string::npos) {
        SP_TRY(CheckEnd());
        return Finish();
      }
      if (count >= kTarEntriesMax) return Wrong("at most a million entries", "more");
      SP_TRY(ReadEntry(block));
    }
    return Wrong("a block of zeros, the archive's end", "none: cut short");
  }

 private:
  Error Wrong(const std::string& expected, const std::string& found) const {
    return BadInput(fmt::format("{}: tar, offset {}: expected {}, found {}",
                                Printable(file_->path()), at_, expected, found));
  }

  /// A header of zeros would end the archive too.
  Status CheckEnd() {
    constexpr uint64_t kPieceBytes = 1u << 20;
    std::string piece;
    for (uint64_t at = at_; at < file_->size(); at += piece.size()) {
      piece.resize(std::min(kPieceBytes, file_->size() - at));
      SP_TRY(file_->ReadAt(at, piece.size(), piece.data()));
      if (piece.find_first_not_of('\0') != std::string::npos)
        return Wrong("the archive's end, zeros", "more behind it");
    }
    return Ok();
  }

  Status ReadEntry(const std::string& block) {
    if (!HasItsChecksum(block)) return Wrong("a header with its checksum", "another sum");
    const auto bytes = Number(std::string_view(block).substr(124, 12));
    if (!bytes) return Wrong("a size", "no number");
    uint64_t size = *bytes;
    const char type = block[156];
    const bool is_extra = type == 'L' || type == 'K' || type == 'x' || type == 'g';
    if (!is_extra && pax_size_) size = *pax_size_;
    const uint64_t left = file_->size() - at_ - kBlockBytes;
    const bool has_data = type != '1' && type != '2' && type != '5';
    if (!has_data) size = 0;
    if (size > left) {
      return Wrong(fmt::format("{} bytes of an entry", size),
                   fmt::format("{} before the archive's end: cut short", left));
    }
    if (is_extra) {
      SP_TRY(ReadExtra(type, size));
    } else {
      SP_TRY(AddEntry(block, type, size));
      long_name_.clear();
      long_link_.clear();
      pax_size_.reset();
    }
    const uint64_t padded = (size + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
    at_ += kBlockBytes + std::min(padded, left);
    return Ok();
  }

  /// What does not fit the header of the entry behind it.
  Status ReadExtra(char type, uint64_t size) {
    if (size > kExtraBytesMax) return Wrong("a name or records of at most 1 MiB", "more");
    std::string text(size, '\0');
    SP_TRY(file_->ReadAt(at_ + kBlockBytes, size, text.data()));
    if (type == 'L') long_name_ = Text(text, 0, size);
    if (type == 'K') long_link_ = Text(text, 0, size);
    return type == 'x' ? ReadRecords(text) : Ok();
  }

  /// "LENGTH KEY=VALUE\n", of which the length counts all.
  Status ReadRecords(std::string_view text) {
    while (!text.empty()) {
      uint64_t length = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
      const auto digits = static_cast<size_t>(end - text.data());
      if (error != std::errc() || length > text.size() || length < digits + 2 ||
          text[digits] != ' ' || text[length - 1] != '\n') {
        return Wrong("records of pax", "something else");
      }
      const std::string_view record = text.substr(digits + 1, length - digits - 2);
      const std::string_view key = record.substr(0, record.find('='));
      const std::string_view value = record.substr(std::min(record.size(), key.size() + 1));
      if (key == "path") long_name_ = value;
      if (key == "linkpath") long_link_ = value;
      if (key.starts_with("GNU.sparse")) return Wrong("files with all their bytes", "a sparse one");
      if (key == "size") {
        uint64_t size = 0;
        const auto [after, bad] = std::from_chars(value.data(), value.data() + value.size(), size);
        if (bad != std::errc() || after != value.data() + value.size())
          return Wrong("a size in the records of pax", Quote(std::string(value)));
        pax_size_ = size;
      }
      text.remove_prefix(length);
    }
    return Ok();
  }

  Status AddEntry(std::string_view block, char type, uint64_t size) {
    std::string name(long_name_);
    if (name.empty()) {
      const bool is_posix = Text(block, kMagicOffset, 6) == "ustar";  // GNU's goes on with spaces
      if (is_posix && block[345] != '\0') name = std::string(Text(block, 345, 155)) + "/";
      name += Text(block, 0, 100);
    }
    if (name.size() > oracle::kTreeNameBytesMax || long_link_.size() > oracle::kTreeNameBytesMax) {
      return Wrong(fmt::format("names of at most {} bytes", oracle::kTreeNameBytesMax),
                   "a longer one");
    }
    SP_ASSIGN(name, Inside(name));
    if (type == '5' || name.empty()) return Ok();
    if (type == '1' || type == '2') {
      std::string target = long_link_.empty() ? std::string(Text(block, 157, 100)) : long_link_;
      if (type == '2' && !target.starts_with('/'))
        target = (std::filesystem::path(name).parent_path() / target).string();
      links_.push_back({name, std::filesystem::path(target).lexically_normal().string(), at_});
      return Ok();
    }
    if (type != '0' && type != '\0' && type != '7') {
      return Wrong("files, folders and links",
                   fmt::format("{} of type {}", Quote(name), Quote(std::string(1, type))));
    }
    return Add(name, PartOf(file_, at_ + kBlockBytes, size));
  }

  /// The name without "./" before it.
  Result<std::string> Inside(const std::string& name) const {
    const std::filesystem::path path(name);
    const bool leads_out =
        path.is_absolute() || name.find('\0') != std::string::npos ||
        std::any_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
    if (leads_out) return Wrong("names inside the archive", Quote(name));
    std::string plain = path.lexically_normal().string();
    if (plain.ends_with('/')) plain.pop_back();
    return plain == "." ? "" : plain;
  }

  Status Add(const std::string& name, oracle::TreeFile file) {
    if (tree_.emplace(name, std::move(file)).second) return Ok();
    return Wrong("every file once", Quote(name) + " twice");
  }

  Result<oracle::Tree> Finish() {
    // A link may lead to a link, as often as Linux follows them.
    constexpr int kLinksFollowedMax = 40;
    bool is_more = true;
    for (int pass = 0; is_more && pass < kLinksFollowedMax; ++pass) {
      is_more = false;
      for (Link& link : links_) {
        const auto found = tree_.find(link.target);
        if (link.name.empty() || found == tree_.end()) continue;
        at_ = link.at;
        SP_TRY(Add(link.name, oracle::TreeFile(found->second)));
        link.name.clear();
        is_more = true;
      }
    }
    for (const Link& link : links_) {
      if (link.name.empty()) continue;
      std::string folder = link.target;
      if (!folder.ends_with('/')) folder += '/';
      const auto below = tree_.lower_bound(folder);
      if (below != tree_.end() && below->first.starts_with(folder)) continue;  // it is there anyway
      at_ = link.at;
      return Wrong("links to files of the archive",
                   fmt::format("{}, a link to {}", Quote(link.name), Quote(link.target)));
    }
    return std::move(tree_);
  }

  struct Link {
    std::string name;
    std::string target;
    uint64_t at = 0;
  };

  const std::shared_ptr<const InputFile>& file_;
  uint64_t at_ = 0;
  std::string long_name_;  ///< of the next entry, if it does not fit
  std::string long_link_;
  std::optional<uint64_t> pax_size_;
  std::vector<Link> links_;
  oracle::Tree tree_;
};

}  // namespace

oracle::TreeFile PartOf(std::shared_ptr<const InputFile> file, uint64_t start, uint64_t bytes) {
  return {bytes, [file = std::move(file), start] {
            return [file, start](uint64_t offset, uint64_t length, char* out) {
              return file->ReadAt(start + offset, length, out);
            };
          }};
}

bool IsTar(const InputFile& file) {
  char magic[5] = {};
  return file.size() >= kBlockBytes && file.ReadAt(kMagicOffset, sizeof magic, magic).ok() &&
         std::string_view(magic, sizeof magic) == "ustar";
}

Result<oracle::Tree> ReadTar(const std::shared_ptr<const InputFile>& file) {
  return TarReader(file).Run();
}

}  // namespace shardproof::formats
