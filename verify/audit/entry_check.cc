#include "verify/audit/entry_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "verify/formats/crc32.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

constexpr ptrdiff_t kTensorsNamedMax = 3;

}  // namespace

EntryCheck::EntryCheck(const formats::StoredCheckpoint& checkpoint) : checkpoint_(checkpoint) {
  for (const formats::StoredArchive& archive : checkpoint.archives) {
    for (const formats::ZipEntry& entry : archive.entries) {
      if (entry.length > 0) entries_.push_back({&archive, &entry});
    }
  }
  const auto place = [](const Entry& entry) {
    return std::tuple(entry.archive->file, entry.entry->offset);
  };
  std::sort(entries_.begin(), entries_.end(),
            [&](const Entry& a, const Entry& b) { return place(a) < place(b); });
  // A damaged directory may name one piece for several tensors.
  const auto same = [&](const Entry& a, const Entry& b) { return place(a) == place(b); };
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same), entries_.end());
  sums_ = std::vector<Sum>(entries_.size());
}

void EntryCheck::Add(uint32_t file, uint64_t start, std::string_view bytes) {
  const uint64_t end = start + bytes.size();
  auto found = std::partition_point(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    const uint64_t entry_end = entry.entry->offset + entry.entry->length;
    return std::tuple(entry.archive->file, entry_end) <= std::tuple(file, start);
  });
  for (; found != entries_.end() && found->archive->file == file; ++found) {
    const formats::ZipEntry& entry = *found->entry;
    if (entry.offset >= end) break;
    const uint64_t from = std::max(start, entry.offset);
    const uint64_t to = std::min(end, entry.offset + entry.length);
    Sum& sum = sums_[static_cast<size_t>(found - entries_.begin())];
    sum.bytes += to - from;
    if (entry.HasCrc()) {
      sum.terms ^= formats::Crc32Term(bytes.substr(from - start, to - from),
                                      entry.offset + entry.length - to);
    }
  }
}

bool EntryCheck::IsJudged(size_t index) const {
  const formats::ZipEntry& entry = *entries_[index].entry;
  return entry.HasCrc() && sums_[index].bytes == entry.length;
}

uint64_t EntryCheck::CountJudged(bool judged) const {
  uint64_t count = 0;
  for (size_t i = 0; i < entries_.size(); ++i) count += IsJudged(i) == judged;
  return count;
}

std::vector<std::string> EntryCheck::Damage() const {
  std::vector<std::string> damage;
  std::vector<Start> starts;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const formats::ZipEntry& entry = *entries_[i].entry;
    const uint32_t found = formats::Crc32OfZeros(entry.length) ^ sums_[i].terms;
    if (!IsJudged(i) || found == entry.crc) continue;
    if (damage.empty()) starts = TensorStarts();
    const std::string& path = checkpoint_.files[entries_[i].archive->file].path;
    damage.push_back(formats::CrcText(path, entry, TensorsIn(entries_[i], starts), found));
  }
  return damage;
}

std::vector<EntryCheck::Start> EntryCheck::TensorStarts() const {
  std::vector<Start> starts;
  for (const formats::StoredTensor& tensor : checkpoint_.tensors) {
    for (const formats::Chunk& chunk : tensor.chunks) {
      if (chunk.Elements() > 0) starts.emplace_back(chunk.file, chunk.file_offset, &tensor);
    }
  }
  std::sort(starts.begin(), starts.end());
  return starts;
}

std::string EntryCheck::TensorsIn(const Entry& entry, const std::vector<Start>& starts) const {
  const auto first = [&](uint64_t offset) {
    return std::lower_bound(starts.begin(), starts.end(),
                            Start(entry.archive->file, offset, nullptr));
  };
  const auto begin = first(entry.entry->offset);
  const auto end = first(entry.entry->offset + entry.entry->length);
  if (begin == end) {
    const std::string& item = entry.archive->item;
    return item.empty() ? "" : ", of " + oracle::Quote(item);
  }
  std::string text = end - begin == 1 ? ", of tensor " : ", of tensors ";
  for (auto at = begin; at != end; ++at) {
    if (at - begin == kTensorsNamedMax) return text + fmt::format(" and {} more", end - at);
    text += (at == begin ? "" : ", ") + oracle::Quote(std::get<2>(*at)->name);
  }
  return text;
}

}  // namespace shardproof
