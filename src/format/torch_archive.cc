#include "src/format/torch_archive.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

namespace shardproof {
namespace {

constexpr uint64_t kPickleBytesMax = 64u << 20;
constexpr uint64_t kUsualEntries = 8;  // torch.save of one tensor makes six

/// What an archive has in its first folder.
struct Entry {
  std::string_view name;
  uint64_t begin = 0;
  uint64_t length = 0;
};

/// The entry of that name among sorted ones; null if there is none.
const Entry* Find(const std::vector<Entry>& entries, std::string_view name) {
  const auto found = std::lower_bound(
      entries.begin(), entries.end(), name,
      [](const Entry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found == entries.end() || found->name != name ? nullptr : &*found;
}

/// A ZIP archive as torch.save writes it: nothing in it compressed or encrypted, nothing behind it.
/// Every number is checked against the bytes that there are. \source APPNOTE.TXT 6.3.10, 4.3
class Archive {
 public:
  Archive(const std::byte* data, uint64_t bytes) : data_(data), bytes_(bytes) {}

  /// The entries, sorted by name: of thousands of archives, each makes no more than one allocation.
  /// \returns nullopt if it is no such archive.
  std::optional<std::vector<Entry>> Entries() const {
    constexpr uint64_t kEnd = 22, kEnd64 = 56, kLocator64 = 20, kEntry = 46, kLocal = 30;
    if (bytes_ < kEnd || !Has(bytes_ - kEnd, "PK\x05\x06") || Number(bytes_ - 2, 2) != 0) return {};
    uint64_t count = Number(bytes_ - 12, 2);
    uint64_t size = Number(bytes_ - 10, 4);
    uint64_t at = Number(bytes_ - 6, 4);
    uint64_t end = bytes_ - kEnd;
    if (end >= kLocator64 && Has(end - kLocator64, "PK\x06\x07")) {
      const uint64_t record = Number(end - kLocator64 + 8, 8);
      if (!IsThere(record, kEnd64) || !Has(record, "PK\x06\x06")) return {};
      count = Number(record + 32, 8);
      size = Number(record + 40, 8);
      at = Number(record + 48, 8);
      end = record;
    }
    if (at > end || size != end - at) return {};
    std::vector<Entry> entries;
    entries.reserve(std::min(count, kUsualEntries));
    for (uint64_t i = 0; i < count; ++i) {
      if (!IsThere(at, kEntry) || !Has(at, "PK\x01\x02")) return {};
      const uint64_t name_bytes = Number(at + 28, 2), extra_bytes = Number(at + 30, 2);
      const uint64_t entry_bytes = kEntry + name_bytes + extra_bytes + Number(at + 32, 2);
      if (end - at < entry_bytes) return {};
      const bool is_plain = (Number(at + 8, 2) & 1) == 0 && Number(at + 10, 2) == 0;
      uint64_t sizes[] = {Number(at + 24, 4), Number(at + 20, 4), Number(at + 42, 4)};
      if (!is_plain || !Widen(at + kEntry + name_bytes, extra_bytes, sizes)) return {};
      const auto [length, stored, header] = sizes;
      if (length != stored) return {};
      if (!IsThere(header, kLocal) || !Has(header, "PK\x03\x04")) return {};
      const uint64_t begin = header + kLocal + Number(header + 26, 2) + Number(header + 28, 2);
      if (!IsThere(begin, length)) return {};
      const std::string_view name = Text(at + kEntry, name_bytes);
      const size_t slash = name.find('/');
      if (slash == name.npos) return {};
      entries.push_back({name.substr(slash + 1), begin, length});
      at += entry_bytes;
    }
    std::sort(entries.begin(), entries.end(),
              [](const Entry& a, const Entry& b) { return a.name < b.name; });
    const auto twice =
        std::adjacent_find(entries.begin(), entries.end(),
                           [](const Entry& a, const Entry& b) { return a.name == b.name; });
    if (twice != entries.end()) return {};
    return entries;
  }

  std::string_view Text(uint64_t at, uint64_t length) const {
    return {reinterpret_cast<const char*>(data_) + at, length};
  }

 private:
  bool IsThere(uint64_t at, uint64_t bytes) const { return at <= bytes_ && bytes <= bytes_ - at; }
  bool Has(uint64_t at, std::string_view mark) const { return Text(at, 4) == mark; }
  uint64_t Number(uint64_t at, int width) const {
    uint64_t number = 0;
    std::memcpy(&number, data_ + at,
                static_cast<size_t>(width));  // little-endian, as this machine is
    return number;
  }
  /// Takes from the extra fields the numbers that have no room in the entry.
  bool Widen(uint64_t at, uint64_t length, uint64_t (&numbers)[3]) const {
    for (uint64_t done = 0; length - done >= 4;) {
      const uint64_t id = Number(at + done, 2), field = Number(at + done + 2, 2);
      if (field > length - done - 4) return false;
      uint64_t taken = 0;
      for (uint64_t& number : numbers) {
        if (id != 1 || number != 0xffffffff) continue;
        if (field - taken < 8) return false;
        number = Number(at + done + 4 + taken, 8);
        taken += 8;
      }
      done += 4 + field;
    }
    return true;
  }

  const std::byte* data_;
  uint64_t bytes_;
};

}  // namespace

Result<ReadItem> OpenTorchItem(const std::byte* data, uint64_t bytes,
                               const std::function<std::string()>& where) {
  const Archive archive(data, bytes);
  const auto entries = archive.Entries();
  if (!entries) {
    return BadInput(
        where() +
        ": expected an archive as torch.save writes it, whole and uncompressed, found another");
  }
  const Entry* pickle = Find(*entries, "data.pkl");
  if (pickle == nullptr || pickle->length > kPickleBytesMax) {
    return BadInput(where() + ": expected an entry data.pkl of at most 64 MiB, found none");
  }
  ReadItem item;
  item.pickle = archive.Text(pickle->begin, pickle->length);
  const Entry* order = Find(*entries, "byteorder");
  if (order != nullptr && archive.Text(order->begin, order->length) != "little") {
    return BadInput(where() + ": expected the bytes of a little-endian machine, found others");
  }
  if (const Entry* storage = Find(*entries, "data/0")) {
    item.data_offset = storage->begin;
    item.data_bytes = storage->length;
  }
  return item;
}

}  // namespace shardproof
