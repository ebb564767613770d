#include "verify/dcp_forms/archive_forms.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "verify/formats/crc32.h"

namespace shardproof::dcp_forms {
namespace {

constexpr uint64_t kElsewhere = 0xffffffff;  // what does not fit stands in a field of 64 bits
constexpr uint64_t kAlignment = 64;
constexpr uint16_t kSizesFollow = 1 << 3;  // of a member's flags
constexpr uint16_t kUtf8Names = 1 << 11;

template <typename Integer>
void Put(std::string& out, uint64_t value) {
  const auto narrow = static_cast<Integer>(value);
  char raw[sizeof narrow];
  std::memcpy(raw, &narrow, sizeof narrow);  // little-endian, as this machine is
  out.append(raw, sizeof raw);
}

/// An extra field.
std::string Extra(uint16_t id, const std::string& content) {
  std::string out;
  Put<uint16_t>(out, id);
  Put<uint16_t>(out, content.size());
  return out + content;
}

/// Those numbers that have no room where they belong.
std::string Wide(const std::vector<uint64_t>& numbers) {
  std::string content;
  for (const uint64_t number : numbers) Put<uint64_t>(content, number);
  return numbers.empty() ? "" : Extra(1, content);
}

class ArchiveForm {
 public:
  explicit ArchiveForm(Draws& draws)
      : draws_(draws),
        wide_sizes_(draws.Below(4) == 0),
        wide_offset_(draws.Below(4) == 0),
        wide_directory_(draws.Below(3) == 0),
        sizes_follow_(draws.Below(3) == 0),
        aligns_(draws.Flag()) {}

  std::string Whole(const std::vector<ArchiveMember>& members) {
    for (const ArchiveMember& member : members) Add(member);
    const uint64_t begin = out_.size();
    out_ += directory_;
    End(begin, members.size());
    return std::move(out_);
  }

 private:
  /// What a local header and an entry of the directory have in common.
  void PutCommon(std::string& out, uint32_t crc, uint64_t bytes, const std::string& name,
                 const std::string& extra) const {
    const bool is_wide = wide_sizes_ || wide_offset_;
    Put<uint16_t>(out, is_wide ? 45 : 20);  // version that is needed
    Put<uint16_t>(out, kUtf8Names | (sizes_follow_ ? kSizesFollow : 0));
    Put<uint16_t>(out, 0);  // stored, not compressed
    Put<uint32_t>(out, 0);  // time and date
    Put<uint32_t>(out, crc);
    Put<uint32_t>(out, bytes);
    Put<uint32_t>(out, bytes);
    Put<uint16_t>(out, name.size());
    Put<uint16_t>(out, extra.size());
  }

  void Add(const ArchiveMember& member) {
    const uint64_t header = out_.size(), bytes = member.content.size();
    const uint32_t crc = formats::Crc32(member.content);
    const uint64_t narrow = wide_sizes_ ? kElsewhere : bytes;
    std::string extra = wide_sizes_ ? Wide({bytes, bytes}) : "";
    if (aligns_) {
      constexpr uint64_t kHeader = 30, kField = 4;
      const uint64_t before = header + kHeader + member.name.size() + extra.size() + kField;
      extra += Extra(0x4246, std::string((kAlignment - before % kAlignment) % kAlignment, '\0'));
    }
    out_ += "PK\x03\x04";
    PutCommon(out_, sizes_follow_ ? 0 : crc, sizes_follow_ && !wide_sizes_ ? 0 : narrow,
              member.name, extra);
    out_ += member.name + extra + member.content;
    if (sizes_follow_) {
      out_ += "PK\x07\x08";
      Put<uint32_t>(out_, crc);
      for (int i = 0; i < 2; ++i) {
        if (wide_sizes_)
          Put<uint64_t>(out_, bytes);
        else
          Put<uint32_t>(out_, bytes);
      }
    }
    std::vector<uint64_t> numbers;
    if (wide_sizes_) numbers = {bytes, bytes};
    if (wide_offset_) numbers.push_back(header);
    AddEntry(member.name, crc, narrow, wide_offset_ ? kElsewhere : header, Wide(numbers));
  }

  void AddEntry(const std::string& name, uint32_t crc, uint64_t bytes, uint64_t header,
                std::string extra) {
    // A time of more digits, as Info-ZIP has it, before or behind.
    const std::string time = Extra(0x5455, std::string("\x01\0\0\0\0", 5));
    if (draws_.Below(4) == 0) extra = draws_.Flag() ? time + extra : extra + time;
    const std::string comment = draws_.Below(8) == 0 ? "a note" : "";
    directory_ += "PK\x01\x02";
    Put<uint16_t>(directory_, 45);  // version that wrote it
    PutCommon(directory_, crc, bytes, name, extra);
    Put<uint16_t>(directory_, comment.size());
    directory_.append(8, '\0');  // first disk, no attributes
    Put<uint32_t>(directory_, header);
    directory_ += name + extra + comment;
  }

  void End(uint64_t begin, uint64_t count) {
    const uint64_t bytes = out_.size() - begin, record = out_.size();
    if (wide_directory_) {
      out_ += "PK\x06\x06";
      Put<uint64_t>(out_, 44);  // of what follows in this record
      Put<uint16_t>(out_, 45);
      Put<uint16_t>(out_, 45);
      Put<uint64_t>(out_, 0);  // disks
      for (const uint64_t number : {count, count, bytes, begin}) Put<uint64_t>(out_, number);
      out_ += "PK\x06\x07";
      Put<uint32_t>(out_, 0);
      Put<uint64_t>(out_, record);
      Put<uint32_t>(out_, 1);
    }
    const bool says_both = !wide_directory_ || draws_.Flag();
    out_ += "PK\x05\x06";
    Put<uint32_t>(out_, 0);
    for (int i = 0; i < 2; ++i) Put<uint16_t>(out_, says_both ? count : 0xffff);
    Put<uint32_t>(out_, says_both ? bytes : kElsewhere);
    Put<uint32_t>(out_, says_both ? begin : kElsewhere);
    Put<uint16_t>(out_, 0);  // no comment
  }

  Draws& draws_;
  const bool wide_sizes_, wide_offset_, wide_directory_, sizes_follow_, aligns_;
  std::string out_;
  std::string directory_;
};

}  // namespace

std::string ArchiveOf(std::vector<ArchiveMember> members, Draws& draws) {
  // torch reads them by name; its own first is the pickle.
  for (size_t i = members.size(); i > 1 && draws.Below(2) == 0; --i) {
    std::swap(members[i - 1], members[draws.Below(i)]);
  }
  return ArchiveForm(draws).Whole(members);
}

}  // namespace shardproof::dcp_forms
