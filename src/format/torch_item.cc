#include "src/format/torch_item.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

#include "src/format/torch_names.h"
#include "src/pickle/pickle_writer.h"

namespace shardproof {
namespace {

constexpr uint64_t kLocalHeaderBytes = 30;
constexpr uint64_t kMax32 = 0xffffffff;
constexpr uint16_t kZip64 = 1;         // ids of extra fields
constexpr uint16_t kPadding = 0x4246;  // "FB", as torch has it
constexpr uint16_t kUtf8Names = 1 << 11;

template <typename Number>
void Put(std::string& out, Number number) {
  char raw[sizeof number];
  std::memcpy(raw, &number, sizeof number);  // little-endian, as this machine is
  out.append(raw, sizeof number);
}

/// What a local header and a directory entry have in common.
/// \source APPNOTE.TXT 6.3.10, 4.4
void PutCommon(std::string& out, uint32_t crc, uint64_t bytes, size_t name_bytes,
               size_t extra_bytes) {
  const bool is_large = bytes >= kMax32;
  Put<uint16_t>(out, is_large ? 45 : 20);  // version that is needed
  Put(out, kUtf8Names);
  Put<uint16_t>(out, 0);  // stored, not compressed
  Put<uint16_t>(out, 0);  // time and date: none, so that the bytes depend on the content alone
  Put<uint16_t>(out, 33);
  Put(out, crc);
  Put(out, static_cast<uint32_t>(is_large ? kMax32 : bytes));
  Put(out, static_cast<uint32_t>(is_large ? kMax32 : bytes));
  Put(out, static_cast<uint16_t>(name_bytes));
  Put(out, static_cast<uint16_t>(extra_bytes));
}

uint64_t Zip64Bytes(uint64_t bytes) { return bytes >= kMax32 ? 20 : 0; }

void PutZip64(std::string& out, uint64_t bytes) {
  if (bytes < kMax32) return;
  Put(out, kZip64);
  Put<uint16_t>(out, 16);
  Put(out, bytes);
  Put(out, bytes);
}

std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t dim = shape.size(); dim-- > 1;) {
    strides[dim - 1] = strides[dim] * std::max<int64_t>(shape[dim], 1);
  }
  return strides;
}

}  // namespace

uint32_t Crc32(uint32_t crc, std::string_view bytes) {
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

TorchItem TorchItem::OfTensor(at::ScalarType dtype, const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  const auto bytes = static_cast<int64_t>(c10::elementSize(dtype)) * elements;
  const std::string_view storage = TorchStorageName(dtype);
  const bool is_young = storage.empty();  // a view of bytes that says its dtype
  pickle::PickleWriter out;
  out.Name("torch._utils", is_young ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  out.Mark();
  out.Mark();
  out.Text("storage");
  if (is_young)
    out.Name("torch.storage", "UntypedStorage");
  else
    out.Name("torch", storage);
  out.Text("0");
  out.Text("cpu");
  out.Integer(is_young ? bytes : elements);
  out.Tuple();
  out.Persistent();
  out.Integer(0);
  out.Integers(shape);
  out.Integers(RowMajorStrides(shape));
  out.Bool(false);  // requires no gradient
  out.Name("collections", "OrderedDict");
  out.EmptyTuple();
  out.Reduce();  // no hooks
  if (is_young) out.Name("torch", TorchDtypeName(dtype));
  out.Tuple();
  out.Reduce();
  return TorchItem(out.Finish(), true, static_cast<uint64_t>(bytes));
}

TorchItem TorchItem::OfValue(std::string pickle) { return TorchItem(std::move(pickle), false, 0); }

TorchItem::TorchItem(std::string pickle, bool has_tensor, uint64_t data_bytes)
    : data_bytes_(data_bytes) {
  // The names and their order are torch's own; what is left out, its readers do without.
  members_.push_back({.name = "archive/data.pkl", .content = std::move(pickle)});
  members_.push_back({.name = "archive/byteorder", .content = "little"});
  if (has_tensor) members_.push_back({.name = "archive/data/0", .is_tensor = true});
  members_.push_back({.name = "archive/version", .content = "3\n"});
  uint64_t at = 0;
  for (Member& member : members_) {
    member.offset = at;
    member.bytes = member.is_tensor ? data_bytes : member.content.size();
    at += kLocalHeaderBytes + member.name.size() + Zip64Bytes(member.bytes);
    if (member.is_tensor) {
      // An extra field takes four bytes at least.
      member.padding = (kItemAlignment - (at + 4) % kItemAlignment) % kItemAlignment + 4;
      at += member.padding;
      data_offset_ = at;
    }
    at += member.bytes;
  }
  directory_offset_ = at;
  if (!has_tensor) data_offset_ = at;
  bytes_ = data_offset_ + data_bytes_ + Tail(0).size();
}

uint32_t TorchItem::CrcOf(const Member& member, uint32_t crc) const {
  return member.is_tensor ? crc : Crc32(0, member.content);
}

std::string TorchItem::LocalHeader(const Member& member, uint32_t crc) {
  std::string out = "PK\x03\x04";
  PutCommon(out, crc, member.bytes, member.name.size(), Zip64Bytes(member.bytes) + member.padding);
  out += member.name;
  PutZip64(out, member.bytes);
  if (member.padding > 0) {
    Put(out, kPadding);
    Put(out, static_cast<uint16_t>(member.padding - 4));
    out.append(member.padding - 4, '\0');
  }
  return out;
}

std::string TorchItem::Head(uint32_t crc) const {
  std::string out;
  for (const Member& member : members_) {
    if (member.offset >= data_offset_) break;
    out += LocalHeader(member, CrcOf(member, crc));
    out += member.content;
  }
  return out;
}

std::string TorchItem::Tail(uint32_t crc) const {
  std::string out;
  for (const Member& member : members_) {
    if (member.offset < data_offset_) continue;
    out += LocalHeader(member, CrcOf(member, crc));
    out += member.content;
  }
  const uint64_t directory_begin = out.size();
  for (const Member& member : members_) {
    const bool is_far = member.offset >= kMax32;
    std::string extra;
    if (member.bytes >= kMax32 || is_far) {
      Put(extra, kZip64);
      Put(extra, static_cast<uint16_t>((member.bytes >= kMax32 ? 16 : 0) + (is_far ? 8 : 0)));
      if (member.bytes >= kMax32) {
        Put(extra, member.bytes);
        Put(extra, member.bytes);
      }
      if (is_far) Put(extra, member.offset);
    }
    out += "PK\x01\x02";
    Put<uint16_t>(out, 45);  // version that wrote it
    PutCommon(out, CrcOf(member, crc), member.bytes, member.name.size(), extra.size());
    out.append(10, '\0');  // no comment, first disk, no attributes
    Put(out, static_cast<uint32_t>(is_far ? kMax32 : member.offset));
    out += member.name;
    out += extra;
  }
  const uint64_t directory_bytes = out.size() - directory_begin;
  const auto count = static_cast<uint16_t>(members_.size());
  const bool is_far = directory_offset_ >= kMax32;
  if (is_far) {
    const uint64_t record_offset = directory_offset_ + directory_bytes;
    out += "PK\x06\x06";
    Put<uint64_t>(out, 44);  // of what follows in this record
    Put<uint16_t>(out, 45);
    Put<uint16_t>(out, 45);
    Put<uint32_t>(out, 0);
    Put<uint32_t>(out, 0);
    Put<uint64_t>(out, count);
    Put<uint64_t>(out, count);
    Put(out, directory_bytes);
    Put(out, directory_offset_);
    out += "PK\x06\x07";
    Put<uint32_t>(out, 0);
    Put(out, record_offset);
    Put<uint32_t>(out, 1);
  }
  out += "PK\x05\x06";
  Put<uint32_t>(out, 0);
  Put(out, count);
  Put(out, count);
  Put(out, static_cast<uint32_t>(directory_bytes));
  Put(out, static_cast<uint32_t>(is_far ? kMax32 : directory_offset_));
  Put<uint16_t>(out, 0);
  return out;
}

}  // namespace shardproof
