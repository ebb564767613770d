#include "verify/formats/torch_archive.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <tuple>

#include "verify/formats/crc32.h"
#include "verify/oracle/dtype.h"
#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

using oracle::DtypeInfo;
using oracle::Printable;
using oracle::Quote;
using Kind = PickleValue::Kind;

constexpr uint64_t kPickleBytesMax = uint64_t{1} << 30;
constexpr uint64_t kSharedBytesMax = uint64_t{1} << 30;
constexpr int64_t kVersionMax = 10;  // caffe2/serialize/versions.h; torch.save writes 3

constexpr std::array<std::pair<std::string_view, std::string_view>, 47> kDtypes = {{
    {"torch.float64", "F64"},
    {"torch.DoubleStorage", "F64"},
    {"torch.float32", "F32"},
    {"torch.FloatStorage", "F32"},
    {"torch.float16", "F16"},
    {"torch.HalfStorage", "F16"},
    {"torch.bfloat16", "BF16"},
    {"torch.BFloat16Storage", "BF16"},
    {"torch.int64", "I64"},
    {"torch.LongStorage", "I64"},
    {"torch.int32", "I32"},
    {"torch.IntStorage", "I32"},
    {"torch.int16", "I16"},
    {"torch.ShortStorage", "I16"},
    {"torch.int8", "I8"},
    {"torch.CharStorage", "I8"},
    {"torch.uint8", "U8"},
    {"torch.ByteStorage", "U8"},
    {"torch.bool", "BOOL"},
    {"torch.BoolStorage", "BOOL"},
    {"torch.complex64", "C64"},
    {"torch.ComplexFloatStorage", "C64"},
    {"torch.complex128", "C128"},
    {"torch.ComplexDoubleStorage", "C128"},
    {"torch.complex32", "C32"},
    {"torch.float4_e2m1fn_x2", "F4"},
    {"torch.quint8", "U8"},
    {"torch.QUInt8Storage", "U8"},
    {"torch.qint8", "I8"},
    {"torch.QInt8Storage", "I8"},
    {"torch.qint32", "I32"},
    {"torch.QInt32Storage", "I32"},
    {"torch.quint4x2", "U8"},
    {"torch.QUInt4x2Storage", "U8"},
    {"torch.bits8", "U8"},
    {"torch.bits16", "U16"},
    {"torch.bits1x8", "U8"},
    {"torch.bits2x4", "U8"},
    {"torch.bits4x2", "U8"},
    {"torch.uint64", "U64"},
    {"torch.uint32", "U32"},
    {"torch.uint16", "U16"},
    {"torch.float8_e4m3fn", "F8_E4M3"},
    {"torch.float8_e5m2", "F8_E5M2"},
    {"torch.float8_e8m0fnu", "F8_E8M0"},
    {"torch.float8_e4m3fnuz", "F8_E4M3FNUZ"},
    {"torch.float8_e5m2fnuz", "F8_E5M2FNUZ"},
}};

/// Elements from the first to the last of a strided view; nothing if that overflows.
std::optional<uint64_t> Reach(const std::vector<int64_t>& shape,
                              const std::vector<int64_t>& strides) {
  uint64_t reach = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    uint64_t step = 0;
    if (shape[i] == 0) return 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(shape[i] - 1),
                               static_cast<uint64_t>(strides[i]), &step) ||
        __builtin_add_overflow(reach, step, &reach)) {
      return std::nullopt;
    }
  }
  return reach;
}

Result<std::string> ReadEntry(const oracle::InputFile& file, const ZipEntry& entry,
                              const std::string& where) {
  if (entry.length > kPickleBytesMax) {
    return BadInput(fmt::format("{}: {}: expected at most {} bytes, found {}", Printable(where),
                                Quote(entry.name), kPickleBytesMax, entry.length));
  }
  std::string bytes(entry.length, '\0');
  SP_TRY(file.ReadAt(entry.offset, entry.length, bytes.data()));
  return bytes;
}

/// torch._tensor._rebuild_from_type_v2(function, class, arguments, state): a tensor that has
/// attributes of its own, such as nn.Buffer, or is of a subclass. \returns whether the function
/// makes a plain tensor.
bool IsTypedTensor(const PickleValue& value) {
  constexpr std::array kPlain = {"torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2",
                                 "torch._utils._rebuild_tensor_v3",
                                 "torch._utils._rebuild_parameter",
                                 "torch._utils._rebuild_parameter_with_state"};
  return IsFromType(value) &&
         std::find(kPlain.begin(), kPlain.end(), value.items[0]->text) != kPlain.end();
}

}  // namespace

bool IsFromType(const PickleValue& value) {
  return value.IsObject("torch._tensor._rebuild_from_type_v2") && value.items.size() == 4 &&
         value.items[0]->Is(Kind::kName) && value.items[1]->Is(Kind::kName) &&
         value.items[2]->Is(Kind::kTuple);
}

std::string_view DtypeOfName(std::string_view name) {
  for (const auto& [torch, ours] : kDtypes) {
    if (torch == name) return ours;
  }
  return "";
}

Result<std::vector<int64_t>> Sizes(const PickleValue& value, const std::string& what) {
  const auto wrong = [&](const PickleValue& found) {
    return BadInput(
        fmt::format("{}: expected integers of at least 0, found {}", what, Describe(found)));
  };
  if (!value.Is(Kind::kTuple) && !value.Is(Kind::kList)) return wrong(value);
  constexpr size_t kDimsMax = 64;  // of torch's tensors
  if (value.items.size() > kDimsMax) {
    return BadInput(fmt::format("{}: expected at most {} of them, found {}", what, kDimsMax,
                                value.items.size()));
  }
  std::vector<int64_t> sizes;
  for (const PickleValue* item : value.items) {
    if (!item->Is(Kind::kInteger) || item->is_big || item->integer < 0) return wrong(*item);
    sizes.push_back(item->integer);
  }
  return sizes;
}

Status TorchArchive::CheckVersion(const std::string& text) const {
  int64_t version = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, version);
  const bool is_number =
      error == std::errc() && (rest == end || (*rest == '\n' && rest + 1 == end));
  if (is_number && version >= 1 && version <= kVersionMax) return Ok();
  const std::string expected =
      fmt::format("a format version from 1 to {} in entry version", kVersionMax);
  if (!is_number || version < 1) return Wrong(expected, Quote(text));
  return Unsupported(fmt::format("{}: expected {}, found {}, which is not known", Printable(where_),
                                 expected, version));
}

Result<TorchArchive> TorchArchive::Open(std::shared_ptr<const oracle::InputFile> file,
                                        uint64_t start, uint64_t length, bool* is_rotten) {
  TorchArchive archive;
  archive.where_ = file->path();
  archive.file_ = std::move(file);
  SP_ASSIGN(archive.entries_, ReadZip(*archive.file_, start, length));
  std::vector<ZipEntry>& entries = archive.entries_;
  const ZipEntry* pickle = nullptr;
  const ZipEntry* order = nullptr;
  const ZipEntry* version = nullptr;
  // torch takes the folder of the first entry for that of all.
  const std::string folder =
      entries.empty() ? "" : entries[0].name.substr(0, entries[0].name.find('/') + 1);
  for (ZipEntry& entry : entries) {
    if (folder.empty() || !entry.name.starts_with(folder)) {
      return archive.Wrong("entries in one folder, as torch.save writes them", Quote(entry.name));
    }
    entry.name.erase(0, folder.size());
    const std::string& name = entry.name;
    if (name == "constants.pkl") {
      return Unsupported(fmt::format("{}: expected what torch.save wrote, found TorchScript's",
                                     Printable(archive.where_)));
    }
    if (name == "archive_format") {
      return Unsupported(fmt::format("{}: expected what torch.save wrote, found torch.export's",
                                     Printable(archive.where_)));
    }
    if (name == "data.pkl") pickle = &entry;
    if (name == "byteorder") order = &entry;
    if (name == "version" || name == ".format_version") version = &entry;
    if (name.starts_with("data/")) {
      archive.storages_.emplace(std::string_view(name).substr(5), &entry);
    }
  }
  if (pickle == nullptr || version == nullptr) {
    return archive.Wrong("entries data.pkl and version, as torch.save writes them",
                         pickle == nullptr ? "no data.pkl" : "no version");
  }
  SP_ASSIGN(const std::string number, ReadEntry(*archive.file_, *version, archive.where_));
  SP_TRY(archive.CheckVersion(number));
  if (order != nullptr) {
    SP_ASSIGN(const std::string text, ReadEntry(*archive.file_, *order, archive.where_));
    if (text == "big") {
      return Unsupported(
          fmt::format("{}: written on a big-endian machine", Printable(archive.where_)));
    }
    if (text != "little") return archive.Wrong("byteorder 'little' or 'big'", Quote(text));
  }
  SP_ASSIGN(std::string bytes, ReadEntry(*archive.file_, *pickle, archive.where_));
  const std::string where =
      fmt::format("{}: {} at offset {}", archive.where_, pickle->name, pickle->offset);
  // First, since names and sizes out of a pickle that rotted would be told as if they were true.
  if (const uint32_t crc = Crc32(bytes); pickle->HasCrc() && crc != pickle->crc) {
    if (is_rotten != nullptr) *is_rotten = true;
    return BadInput(CrcText(archive.where_, *pickle, "", crc));
  }
  SP_ASSIGN(archive.pickle_, ReadPickle(std::move(bytes), where, UnknownNames::kKeep));
  return archive;
}

Error TorchArchive::Wrong(const std::string& expected, const std::string& found) const {
  return BadInput(fmt::format("{}: expected {}, found {}", Printable(where_), expected, found));
}

Result<std::optional<TorchTensor>> TorchArchive::AsTensor(const PickleValue& value,
                                                          bool is_lazy_too) const {
  if (value.Is(Kind::kPersistent)) {  // a storage by itself: all of it, as a vector
    SP_ASSIGN(const Storage storage, StorageOf(value));
    const auto numbers = static_cast<int64_t>(storage.elements) * storage.numbers;
    return std::optional(TorchTensor{storage.dtype->name, {numbers}, {1}, storage.offset});
  }
  PickleValue plain;  // of a tensor that was saved with its attributes
  const PickleValue* call = &value;
  if (IsTypedTensor(value)) {
    plain = {.kind = Kind::kObject, .text = value.items[0]->text, .items = value.items[2]->items};
    call = &plain;
  }
  const bool is_parameter = call->IsObject("torch._utils._rebuild_parameter") ||
                            call->IsObject("torch._utils._rebuild_parameter_with_state");
  if (is_parameter) {
    const size_t count = call->IsObject("torch._utils._rebuild_parameter") ? 3 : 4;
    if (call->items.size() != count) {
      return Wrong(fmt::format("{} arguments of a parameter", count),
                   fmt::format("{}", call->items.size()));
    }
    call = call->items[0];
  }
  for (const auto& [name, least, most] : {std::tuple("torch._utils._rebuild_tensor", 4, 4),
                                          {"torch._utils._rebuild_tensor_v2", 6, 7},
                                          {"torch._utils._rebuild_tensor_v3", 7, 8}}) {
    if (!call->IsObject(name)) continue;
    const auto given = static_cast<int>(call->items.size());
    if (given < least || given > most) {
      return Wrong(fmt::format("{} to {} arguments of {}", least, most, name),
                   fmt::format("{}", given));
    }
    SP_ASSIGN(TorchTensor tensor, View(*call));
    if (!tensor.lazy.empty() && !is_lazy_too) {
      return Unsupported(fmt::format("{}: a tensor that is changed while it is loaded: {}",
                                     Printable(where_), tensor.lazy));
    }
    return std::optional<TorchTensor>(std::move(tensor));
  }
  if (is_parameter) return Wrong("the tensor of a parameter", Describe(*call));
  return std::optional<TorchTensor>();
}

Result<TorchArchive::Storage> TorchArchive::StorageOf(const PickleValue& persistent) const {
  // ("storage", type, key, location, elements)
  const PickleValue& id = *persistent.items[0];
  const auto& parts = id.items;
  const bool fits = id.Is(Kind::kTuple) && parts.size() == 5 && parts[0]->Is(Kind::kText) &&
                    parts[0]->text == "storage" && parts[1]->Is(Kind::kName) &&
                    parts[2]->Is(Kind::kText) && parts[3]->Is(Kind::kText) &&
                    parts[4]->Is(Kind::kInteger) && !parts[4]->is_big;
  if (!fits) return Wrong("the id of a storage", Describe(id));
  const auto entry = storages_.find(parts[2]->text);
  if (entry == storages_.end()) {
    return Wrong("the storage " + Quote(parts[2]->text) + " in the archive", "none");
  }
  const bool is_untyped = parts[1]->text == "torch.storage.UntypedStorage";
  const std::string_view name = is_untyped ? "U8" : DtypeOfName(parts[1]->text);
  const bool is_double_complex = name == "C128";
  const DtypeInfo* dtype = oracle::FindDtype(is_double_complex ? "F64" : name);
  if (dtype == nullptr) {
    return Unsupported(fmt::format("{}: a storage of {}, which is not known", Printable(where_),
                                   Describe(*parts[1])));
  }
  const ZipEntry& storage = *entry->second;
  const int numbers = is_double_complex ? 2 : 1;
  const auto width = static_cast<uint64_t>(dtype->bytes * numbers);
  const uint64_t elements = storage.length / width;
  if (parts[4]->integer < 0 || static_cast<uint64_t>(parts[4]->integer) != elements ||
      storage.length % width != 0) {
    return Wrong(fmt::format("{} elements of {} in storage {}", Describe(*parts[4]), dtype->name,
                             Quote(parts[2]->text)),
                 fmt::format("{} bytes", storage.length));
  }
  return Storage{dtype, storage.offset, elements, storage.length, numbers};
}

Result<std::string> TorchArchive::LazyOf(const PickleValue& call, bool is_v3) const {
  std::string lazy;
  const size_t at = is_v3 ? 7 : 6;
  if (call.items.size() <= at) return lazy;
  const PickleValue& metadata = *call.items[at];
  if (!metadata.Is(Kind::kDict)) return Wrong("a dict of a tensor's metadata", Describe(metadata));
  for (size_t i = 0; i + 1 < metadata.items.size(); i += 2) {
    const PickleValue& name = *metadata.items[i];
    const PickleValue& value = *metadata.items[i + 1];
    if (value.Is(Kind::kBool) && value.integer == 0) continue;
    if (!name.Is(Kind::kText) || (name.text != "conj" && name.text != "neg")) {
      return Unsupported(fmt::format("{}: a tensor that is changed while it is loaded: {}",
                                     Printable(where_), Describe(name)));
    }
    lazy += (lazy.empty() ? "" : ".") + std::string(name.text);
  }
  return lazy;
}

Result<TorchTensor> TorchArchive::View(const PickleValue& call) const {
  const bool is_v3 = call.IsObject("torch._utils._rebuild_tensor_v3");
  const auto& given = call.items;
  TorchTensor tensor;
  SP_ASSIGN(tensor.lazy, LazyOf(call, is_v3));
  if (!given[0]->Is(Kind::kPersistent)) return Wrong("a tensor's storage", Describe(*given[0]));
  SP_ASSIGN(const Storage storage, StorageOf(*given[0]));
  const DtypeInfo* dtype = storage.dtype;
  if (is_v3) {
    dtype = given[6]->Is(Kind::kName) ? oracle::FindDtype(DtypeOfName(given[6]->text)) : nullptr;
    if (dtype == nullptr) {
      return Unsupported(fmt::format("{}: a tensor of {}, which is not known", Printable(where_),
                                     Describe(*given[6])));
    }
  }
  tensor.dtype = dtype->name;
  SP_ASSIGN(tensor.shape, Sizes(*given[2], where_ + ": a tensor's size"));
  SP_ASSIGN(tensor.strides, Sizes(*given[3], where_ + ": a tensor's stride"));
  const bool has_offset =
      given[1]->Is(Kind::kInteger) && !given[1]->is_big && given[1]->integer >= 0;
  if (!has_offset || tensor.strides.size() != tensor.shape.size()) {
    return Wrong("an offset, and a stride for every dim",
                 Describe(*given[1]) + ", " + Describe(*given[3]));
  }
  const auto offset = static_cast<uint64_t>(given[1]->integer);
  const auto width = static_cast<uint64_t>(dtype->bytes) * static_cast<uint64_t>(storage.numbers);
  const auto reach = Reach(tensor.shape, tensor.strides);
  const auto count = oracle::CheckedElements(tensor.shape.data(), tensor.shape.size());
  const uint64_t elements = storage.bytes / width;
  const std::string found =
      fmt::format("[{}] with strides [{}] from {}", fmt::join(tensor.shape, ", "),
                  fmt::join(tensor.strides, ", "), offset);
  if (!count || !reach || offset > elements || *reach > elements - offset) {
    return Wrong(fmt::format("a tensor within the {} elements of its storage", elements), found);
  }
  // Elements that share their bytes are read once for each: a few bytes can stand for any number.
  if (*count > elements && *count > kSharedBytesMax / width) {
    return Unsupported(fmt::format("{}: a tensor of {} elements that share the bytes of {}: {}",
                                   Printable(where_), *count, elements, found));
  }
  tensor.offset = storage.offset + offset * width;
  if (storage.numbers > 1) {
    for (int64_t& stride : tensor.strides) stride *= storage.numbers;
    tensor.shape.push_back(storage.numbers);
    tensor.strides.push_back(1);
  }
  return tensor;
}

}  // namespace shardproof::formats
