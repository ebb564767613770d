#include "verify/oracle/header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "verify/oracle/dtype.h"
#include "verify/oracle/json.h"
#include "verify/oracle/quote.h"

namespace shardproof::oracle {
namespace {

constexpr uint64_t kLengthBytes = 8;  // the header's length, little-endian, opens the file

/// The header's text. Memory is taken only for a length that the file really has.
Result<std::string> HeaderText(const InputFile& file) {
  const std::string where = Printable(file.path());
  if (file.size() < kLengthBytes) {
    return BadInput(fmt::format("{}: expected a safetensors file, of at least 8 bytes, found {}",
                                where, file.size()));
  }
  char raw[kLengthBytes];
  SP_TRY(file.ReadAt(0, kLengthBytes, raw));
  const uint64_t length = LoadBits(raw, kLengthBytes);
  if (length > kHeaderBytesMax) {
    return BadInput(
        fmt::format("{}: offset 0: expected a safetensors file, whose header has at most {} bytes, "
                    "found a header length of {}",
                    where, kHeaderBytesMax, length));
  }
  if (length > file.size() - kLengthBytes) {
    return BadInput(
        fmt::format("{}: offset 0: expected a safetensors file, whose header ends within the {} "
                    "bytes that follow, found a header length of {}",
                    where, file.size() - kLengthBytes, length));
  }
  std::string text(length, '\0');
  SP_TRY(file.ReadAt(kLengthBytes, length, text.data()));
  if (text.empty() || text.front() != '{') {
    return BadInput(fmt::format("{}: offset 8: expected the header to begin with '{{', found {}",
                                where, text.empty() ? "nothing" : Quote(text.substr(0, 1))));
  }
  return text;
}

Status CheckMetadata(const std::string& where, const JsonElement& value) {
  simdjson::dom::object object;
  if (value.get_object().get(object)) {
    return BadInput(
        fmt::format("{}: __metadata__: expected an object, found {}", where, Describe(value)));
  }
  SP_ASSIGN(const std::vector<JsonMember> members, Members(where + ": __metadata__", object));
  for (const JsonMember& member : members) {
    const std::string field = "__metadata__ " + Quote(member.key);
    SP_TRY(AsString(where, field, member.value));
  }
  return Ok();
}

/// One entry's three fields as they stand; offsets still relative to the end of the header.
struct Entry {
  std::string_view dtype;
  std::vector<int64_t> shape;
  std::vector<int64_t> offsets;
};

Result<Entry> ReadEntry(const std::string& where, const JsonElement& value) {
  simdjson::dom::object object;
  if (value.get_object().get(object)) {
    return BadInput(fmt::format("{}: expected an object, found {}", where, Describe(value)));
  }
  SP_ASSIGN(const std::vector<JsonMember> members, Members(where, object));
  Entry entry;
  int found = 0;
  for (const JsonMember& member : members) {
    if (member.key == "dtype") {
      SP_ASSIGN(entry.dtype, AsString(where, "dtype", member.value));
    } else if (member.key == "shape") {
      SP_ASSIGN(entry.shape, AsSizes(where, "shape", member.value));
    } else if (member.key == "data_offsets") {
      SP_ASSIGN(entry.offsets, AsSizes(where, "data_offsets", member.value));
    } else {
      continue;  // the format's own library ignores what it does not know
    }
    ++found;
  }
  if (found != 3) {
    return BadInput(
        fmt::format("{}: expected dtype, shape and data_offsets, found {} of them", where, found));
  }
  return entry;
}

/// The shape of a packed dtype in bytes, as torch has it: [4, 16] of F4 is [4, 8]. Where a row is
/// no whole number of bytes, all of the tensor is one. \error an odd number of bits.
Result<std::vector<int64_t>> ShapeInBytes(const std::string& where, const Entry& entry) {
  const auto bits = static_cast<uint64_t>(PackedBits(entry.dtype));
  const auto elements = CheckedElements(entry.shape.data(), entry.shape.size());
  uint64_t all = 0;
  if (!elements || __builtin_mul_overflow(*elements, bits, &all) || all % 8 != 0) {
    return BadInput(fmt::format("{}: shape: expected a whole number of bytes of {}, found [{}]",
                                where, entry.dtype, fmt::join(entry.shape, ", ")));
  }
  const uint64_t row = entry.shape.empty() ? 0 : static_cast<uint64_t>(entry.shape.back()) * bits;
  if (row % 8 != 0) return std::vector<int64_t>{static_cast<int64_t>(all / 8)};
  std::vector<int64_t> shape = entry.shape;
  if (!shape.empty()) shape.back() = static_cast<int64_t>(row / 8);
  return shape;
}

/// Capitals, digits and underscores, as "F8_E4M3".
bool IsNamedAsDtype(std::string_view name) {
  constexpr const char* kCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  return name.size() >= 2 && name[0] >= 'A' && name[0] <= 'Z' &&
         name.find_first_not_of(kCharacters) == std::string::npos;
}

/// Checks one entry against itself and the file. `data_start` is where the header ends.
Result<TensorLocation> Place(const std::string& where, const Entry& entry, uint64_t data_start,
                             uint64_t data_bytes) {
  const DtypeInfo* dtype = FindDtype(entry.dtype);
  if (dtype == nullptr) {
    const std::string text = fmt::format("{}: dtype: expected one of {}, found {}", where,
                                         KnownDtypes(), Quote(entry.dtype));
    // A name as dtypes have may be one of a newer format: not known, which is no damage.
    return IsNamedAsDtype(entry.dtype) ? Unsupported(text + ", which is not known")
                                       : BadInput(text);
  }
  std::vector<int64_t> shape = entry.shape;
  if (PackedBits(entry.dtype) != 0) {
    SP_ASSIGN(shape, ShapeInBytes(where, entry));
  }
  const auto elements = CheckedElements(shape.data(), shape.size());
  uint64_t bytes = 0;
  if (!elements || __builtin_mul_overflow(*elements, uint64_t(dtype->bytes), &bytes)) {
    return BadInput(
        fmt::format("{}: shape: expected a tensor of less than 2^63 bytes, found one "
                    "that overflows",
                    where));
  }
  if (entry.offsets.size() != 2) {
    return BadInput(fmt::format("{}: data_offsets: expected 2 integers, found {}", where,
                                entry.offsets.size()));
  }
  const uint64_t begin = static_cast<uint64_t>(entry.offsets[0]);
  const uint64_t end = static_cast<uint64_t>(entry.offsets[1]);
  if (begin > end || end > data_bytes) {
    return BadInput(fmt::format("{}: data_offsets: expected begin <= end <= {}, found [{}, {}]",
                                where, data_bytes, begin, end));
  }
  if (end - begin != bytes) {
    return BadInput(fmt::format("{}: data_offsets: expected {} bytes by dtype and shape, found {}",
                                where, bytes, end - begin));
  }
  TensorLocation place;
  place.file_offset = data_start + begin;
  place.byte_length = bytes;
  place.dtype = dtype->name;
  place.shape = std::move(shape);
  return place;
}

/// Every byte of the data belongs to exactly one tensor: no overlap, no gap, nothing behind.
Status CheckTiling(const std::string& where, const std::vector<TensorLocation>& sorted,
                   uint64_t data_start, uint64_t file_bytes) {
  uint64_t expected = data_start;
  for (const TensorLocation& tensor : sorted) {
    if (tensor.file_offset != expected) {
      return BadInput(
          fmt::format("{}: tensor {}: expected its bytes to start at offset {}, found "
                      "{} ({})",
                      where, Quote(tensor.name), expected, tensor.file_offset,
                      tensor.file_offset < expected ? "overlap" : "gap"));
    }
    expected += tensor.byte_length;
  }
  if (expected != file_bytes) {
    return BadInput(fmt::format("{}: offset {}: expected the end of the file, found {} more bytes",
                                where, expected, file_bytes - expected));
  }
  return Ok();
}

}  // namespace

Result<std::vector<TensorLocation>> ReadHeader(const InputFile& file, const std::string& file_name,
                                               bool* parsed) {
  const std::string where = Printable(file.path());
  SP_ASSIGN(const std::string text, HeaderText(file));
  simdjson::dom::parser parser;
  SP_ASSIGN(const simdjson::dom::object header, ParseObject(parser, where + ": header", text));
  SP_ASSIGN(const std::vector<JsonMember> members, Members(where + ": header", header));
  const uint64_t data_start = kLengthBytes + text.size();
  std::vector<std::pair<std::string_view, Entry>> entries;
  for (const JsonMember& member : members) {
    if (member.key == "__metadata__") {
      SP_TRY(CheckMetadata(where, member.value));
      continue;
    }
    SP_ASSIGN(Entry entry, ReadEntry(where + ": tensor " + Quote(member.key), member.value));
    entries.emplace_back(member.key, std::move(entry));
  }
  if (parsed != nullptr) *parsed = true;
  std::vector<TensorLocation> tensors;
  for (const auto& [name, entry] : entries) {
    const std::string place = where + ": tensor " + Quote(name);
    SP_ASSIGN(TensorLocation tensor, Place(place, entry, data_start, file.size() - data_start));
    tensor.name = std::string(name);
    tensor.file = file_name;
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(), [](const TensorLocation& a, const TensorLocation& b) {
    return std::tie(a.file_offset, a.byte_length, a.name) <
           std::tie(b.file_offset, b.byte_length, b.name);
  });
  SP_TRY(CheckTiling(where, tensors, data_start, file.size()));
  return tensors;
}

Result<std::map<std::string, std::string>> ReadMetadata(const InputFile& file) {
  SP_ASSIGN(const std::string text, HeaderText(file));
  simdjson::dom::parser parser;
  SP_ASSIGN(const simdjson::dom::object header, ParseObject(parser, Printable(file.path()), text));
  std::map<std::string, std::string> said;
  simdjson::dom::object metadata;
  if (header["__metadata__"].get(metadata)) return said;
  for (const auto& [key, value] : metadata) {
    std::string_view of_key;
    if (!value.get(of_key)) said.emplace(key, of_key);
  }
  return said;
}

}  // namespace shardproof::oracle
