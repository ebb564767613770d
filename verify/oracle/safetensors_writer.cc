#include "verify/oracle/safetensors_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "verify/oracle/draws.h"
#include "verify/oracle/quote.h"

namespace shardproof::oracle {
namespace {

constexpr uint64_t kBufferBytes = 1u << 20;
constexpr size_t kHeaderAlignment = 8;

Error WriteFailed(const std::string& path) {
  return Failed(fmt::format("{}: cannot be written: {}", Printable(path), std::strerror(errno)));
}

/// What stands in a header: a member of its object without the comma.
using HeaderMembers = std::vector<std::string>;

/// The header's text, padded with spaces so that the data begins at a multiple of 8.
std::string UsualHeader(const HeaderMembers& members) {
  std::string text = fmt::format("{{{}}}", fmt::join(members, ","));
  text.append((kHeaderAlignment - text.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  return text;
}

/// The same in another form: in any order, with spaces between what JSON is made of, and padded by
/// whatever.
std::string OtherHeader(HeaderMembers members, Draws& draws) {
  static const std::vector<std::string> kSpaces = {"", "", " ", "\n", "\t  ", "\r\n"};
  const auto space = [&] { return kSpaces[draws.Below(kSpaces.size())]; };
  const uint64_t metadata = draws.Below(3);
  if (metadata == 0) members.erase(members.begin());
  if (metadata == 1)
    members[0] = R"("__metadata__":{"format":"pt","note":"{\"w\": [1, 2]}","empty":""})";
  draws.Shuffle(members);
  const std::string text = fmt::format("{{{}}}", fmt::join(members, ","));
  std::string spaced;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') {
      spaced += c;
      spaced += text[++i];
      continue;
    }
    if (c == '"') in_string = !in_string;
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (in_string && is_letter && draws.Below(16) == 0)
      spaced += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      spaced += c;
    if (!in_string && std::strchr("{}[],:", c) != nullptr) spaced += space();
  }
  return spaced + std::string(draws.Flag() ? 0 : draws.Below(20), ' ');
}

Result<std::string> Header(const std::vector<PlannedTensor>& tensors,
                           std::optional<uint64_t> form) {
  HeaderMembers members = {R"("__metadata__":{"format":"pt"})"};
  uint64_t begin = 0;
  for (const PlannedTensor& tensor : tensors) {
    const std::optional<uint64_t> bytes = BytesOf(tensor);
    uint64_t end = 0;
    if (!bytes || __builtin_add_overflow(*bytes, begin, &end) || end >> 63 != 0) {
      return BadInput(fmt::format("tensor {}: shape: expected less than 2^63 bytes in one file",
                                  Quote(tensor.name)));
    }
    HeaderMembers fields = {fmt::format(R"("dtype":"{}")", tensor.dtype->name),
                            fmt::format(R"("shape":[{}])", fmt::join(tensor.shape, ",")),
                            fmt::format(R"("data_offsets":[{},{}])", begin, end)};
    if (form) Draws(*form + members.size()).Shuffle(fields);
    members.push_back(fmt::format("{}:{{{}}}", JsonString(tensor.name), fmt::join(fields, ",")));
    begin = end;
  }
  if (!form) return UsualHeader(members);
  Draws draws(*form);
  return OtherHeader(std::move(members), draws);
}

void WriteTensor(const PlannedTensor& tensor, std::ofstream& out) {
  const uint64_t elements = *CheckedElements(tensor.shape.data(), tensor.shape.size());
  const uint64_t bytes = static_cast<uint64_t>(tensor.dtype->bytes);
  const uint64_t piece_elements = kBufferBytes / bytes;
  std::vector<char> piece;
  for (uint64_t start = 0; start < elements && out; start += piece_elements) {
    const uint64_t count = std::min(piece_elements, elements - start);
    piece.resize(count * bytes);
    tensor.fill(start, count, piece.data());
    out.write(piece.data(), static_cast<std::streamsize>(piece.size()));
  }
}

}  // namespace

std::optional<uint64_t> BytesOf(const PlannedTensor& tensor) {
  const auto elements = CheckedElements(tensor.shape.data(), tensor.shape.size());
  uint64_t bytes = 0;
  if (!elements || __builtin_mul_overflow(*elements, uint64_t(tensor.dtype->bytes), &bytes))
    return std::nullopt;
  return bytes;
}

PlannedTensor PlannedBytes(std::string name, const std::string& dtype, std::vector<int64_t> shape,
                           std::string bytes) {
  const DtypeInfo* info = FindDtype(dtype);
  const auto copy = [info, bytes = std::move(bytes)](uint64_t start, uint64_t count, char* out) {
    std::memcpy(out, bytes.data() + start * info->bytes, count * info->bytes);
  };
  return {std::move(name), info, std::move(shape), copy};
}

std::string JsonString(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

Status WriteSafetensors(const std::string& path, const std::vector<PlannedTensor>& tensors,
                        std::optional<uint64_t> form) {
  SP_ASSIGN(const std::string header, Header(tensors, form));
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  char length[8];
  StoreBits(header.size(), sizeof length, length);
  out.write(length, sizeof length);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const PlannedTensor& tensor : tensors) WriteTensor(tensor, out);
  out.close();
  if (!out) return WriteFailed(path);
  return Ok();
}

Status WriteTextFile(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) return WriteFailed(path);
  return Ok();
}

}  // namespace shardproof::oracle
