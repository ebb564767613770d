#include "verify/formats/torch_archive.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "verify/oracle/dtype.h"
#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

using oracle::DtypeInfo;
using oracle::Printable;
using oracle::Quote;
using Kind = PickleValue::Kind;

constexpr uint64_t kPickleBytesMax = uint64_t{1} << 30;

constexpr std::array<std::pair<std::string_view, std::string_view>, 30> kDtypes = {{
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

}  // namespace

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
  std::vector<int64_t> sizes;
  for (const PickleValue* item : value.items) {
    if (!item->Is(Kind::kInteger) || item->is_big || item->integer < 0) return wrong(*item);
    sizes.push_back(item->integer);
  }
  return sizes;
}

Result<TorchArchive> TorchArchive::Open(std::shared_ptr<const oracle::InputFile> file,
                                        uint64_t start, uint64_t length) {
  TorchArchive archive;
  archive.where_ = file->path();
  archive.file_ = std::move(file);
  SP_ASSIGN(std::vector<ZipEntry> entries, ReadZip(*archive.file_, start, length));
  const ZipEntry* pickle = nullptr;
  const ZipEntry* order = nullptr;
  for (ZipEntry& entry : entries) {
    const size_t slash = entry.name.find('/');
    const std::string name = slash == std::string::npos ? entry.name : entry.name.substr(slash + 1);
    if (name == "constants.pkl")
      return archive.Wrong("what torch.save wrote", "a TorchScript archive");
    if (name == "data.pkl") pickle = &entry;
    if (name == "byteorder") order = &entry;
    if (name.starts_with("data/")) archive.storages_.emplace(name.substr(5), entry);
  }
  if (pickle == nullptr) return archive.Wrong("an entry data.pkl, as torch.save writes", "none");
  if (order != nullptr) {
    SP_ASSIGN(const std::string text, ReadEntry(*archive.file_, *order, archive.where_));
    if (text != "little") return archive.Wrong("byteorder 'little'", Quote(text));
  }
  SP_ASSIGN(std::string bytes, ReadEntry(*archive.file_, *pickle, archive.where_));
  const std::string where =
      fmt::format("{}: {} at offset {}", archive.where_, pickle->name, pickle->offset);
  SP_ASSIGN(archive.pickle_, ReadPickle(std::move(bytes), where));
  return archive;
}

Error TorchArchive::Wrong(const std::string& expected, const std::string& found) const {
  return BadInput(fmt::format("{}: expected {}, found {}", Printable(where_), expected, found));
}

Result<std::optional<TorchTensor>> TorchArchive::AsTensor(const PickleValue& value) const {
  const PickleValue* call = &value;
  // A parameter is made of a tensor; a tensor of a parameter is nothing that torch writes.
  const bool is_parameter = value.IsObject("torch._utils._rebuild_parameter") ||
                            value.IsObject("torch._utils._rebuild_parameter_with_state");
  if (is_parameter) {
    if (value.items.empty()) return Wrong("the tensor of a parameter", "nothing");
    call = value.items[0];
  }
  if (call->IsObject("torch._utils._rebuild_tensor_v2") ||
      call->IsObject("torch._utils._rebuild_tensor_v3") ||
      call->IsObject("torch._utils._rebuild_tensor")) {
    SP_ASSIGN(TorchTensor tensor, View(*call));
    return std::optional<TorchTensor>(std::move(tensor));
  }
  if (is_parameter) return Wrong("the tensor of a parameter", Describe(*call));
  return std::optional<TorchTensor>();
}

Result<TorchTensor> TorchArchive::View(const PickleValue& call) const {
  const bool is_v3 = call.IsObject("torch._utils._rebuild_tensor_v3");
  const auto& given = call.items;
  if (given.size() < (is_v3 ? 7u : 4u))
    return Wrong("the arguments of " + Describe(call), fmt::format("{}", given.size()));
  // ("storage", type, key, location, elements)
  const PickleValue& id = *given[0];
  const bool is_storage =
      id.Is(Kind::kPersistent) && id.items[0]->Is(Kind::kTuple) && id.items[0]->items.size() >= 5 &&
      id.items[0]->items[1]->Is(Kind::kName) && id.items[0]->items[2]->Is(Kind::kText);
  if (!is_storage) return Wrong("a tensor's storage", Describe(id));
  const auto& storage = id.items[0]->items;
  const PickleValue& type = is_v3 ? *given[6] : *storage[1];
  const DtypeInfo* dtype = oracle::FindDtype(DtypeOfName(type.text));
  if (!type.Is(Kind::kName) || dtype == nullptr) {
    return Wrong("a dtype that can be read", Describe(type));
  }
  const auto entry = storages_.find(storage[2]->text);
  if (entry == storages_.end()) {
    return Wrong("the storage " + Quote(storage[2]->text) + " in the archive", "none");
  }
  TorchTensor tensor;
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
  const auto reach = Reach(tensor.shape, tensor.strides);
  const uint64_t elements = entry->second.length / static_cast<uint64_t>(dtype->bytes);
  if (!oracle::CheckedElements(tensor.shape.data(), tensor.shape.size()) || !reach ||
      offset > elements || *reach > elements - offset) {
    return Wrong(fmt::format("a tensor within the {} elements of its storage {}", elements,
                             Quote(storage[2]->text)),
                 fmt::format("[{}] with strides [{}] from {}", fmt::join(tensor.shape, ", "),
                             fmt::join(tensor.strides, ", "), offset));
  }
  tensor.offset = entry->second.offset + offset * static_cast<uint64_t>(dtype->bytes);
  return tensor;
}

}  // namespace shardproof::formats
