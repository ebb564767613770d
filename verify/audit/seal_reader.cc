#include "verify/audit/seal_reader.h"

#include <fmt/format.h>

#include "verify/oracle/header.h"
#include "verify/oracle/input_file.h"
#include "verify/oracle/json.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace seal_reader {
namespace {

using oracle::Printable;
using oracle::Quote;

constexpr uint64_t kSealBytesMax = uint64_t{1} << 30;
constexpr size_t kDimsMax = 64;

/// Reads the fields of a seal, each checked.
class SealReader {
 public:
  explicit SealReader(const std::string& path) : path_(path) {}

  Result<Seal> Read() {
    SP_ASSIGN(const std::string text, oracle::ReadWholeFile(path_, kSealBytesMax));
    simdjson::dom::parser parser;
    SP_ASSIGN(const simdjson::dom::object root, oracle::ParseObject(parser, path_, text));
    SP_ASSIGN(const auto members, oracle::Members(path_, root));
    int found = 0;
    for (const oracle::JsonMember& member : members) {
      if (member.key == "schema") {
        SP_TRY(CheckSealSchema(member.value));
        ++found;
      } else if (member.key == "digest") {
        SP_ASSIGN(const std::string_view digest, oracle::AsString(path_, "digest", member.value));
        if (digest != kSealDigestName) {
          return BadInput(fmt::format("{}: digest: expected '{}', found {}", Printable(path_),
                                      kSealDigestName, Quote(std::string(digest))));
        }
      } else if (member.key == "tensors" || member.key == "values" || member.key == "files") {
        auto& out = member.key == "tensors"  ? seal_.tensors
                    : member.key == "values" ? seal_.values
                                             : seal_.files;
        SP_TRY(ReadEntries(std::string(member.key), member.value, out));
        ++found;
      }
    }
    if (found == 4) return std::move(seal_);
    return BadInput(
        fmt::format("{}: expected a seal with schema, tensors, values and files, found {} of them",
                    Printable(path_), found));
  }

 private:
  Status CheckSealSchema(const oracle::JsonElement& value) const {
    const auto schema = oracle::AsInteger(path_, "schema", value, 1, kSealSchema);
    if (!schema.ok() || schema.value() == kSealSchema) return schema.ok() ? Ok() : schema.error();
    return BadInput(
        fmt::format("{}: schema: expected {}, found {}: an older version wrote it; seal --replace "
                    "writes it anew",
                    Printable(path_), kSealSchema, schema.value()));
  }

  Status ReadEntries(const std::string& field, const oracle::JsonElement& value,
                     std::map<std::string, Sealed>& out) {
    SP_ASSIGN(const auto members, MembersOf(field, value));
    for (const oracle::JsonMember& member : members) {
      SP_ASSIGN(Sealed sealed, ReadEntry(field, member));
      out.emplace(member.key, std::move(sealed));
    }
    return Ok();
  }

  /// \param list  "tensors", "values" or "files"
  Result<Sealed> ReadEntry(const std::string& list, const oracle::JsonMember& entry) {
    const std::string field = list + " " + Quote(entry.key);
    SP_ASSIGN(const auto members, MembersOf(field, entry.value));
    Sealed sealed;
    int tags = 0;
    bool has_bytes = false;
    std::string digest;
    for (const oracle::JsonMember& member : members) {
      if (member.key == "dtype") {
        SP_ASSIGN(sealed.dtype, oracle::AsString(path_, field + ": dtype", member.value));
        ++tags;
      } else if (member.key == "digest") {
        SP_ASSIGN(digest, oracle::AsString(path_, field + ": digest", member.value));
      } else if (member.key == "bytes") {
        SP_ASSIGN(sealed.bytes,
                  oracle::AsInteger(path_, field + ": bytes", member.value, 0, INT64_MAX));
        has_bytes = true;
      } else if (member.key == "shape") {
        SP_ASSIGN(sealed.shape, oracle::AsSizes(path_, field + ": shape", member.value));
        ++tags;
      }
    }
    if (list == "tensors" && tags != 2) {
      return BadInput(fmt::format("{}: {}: expected a dtype and a shape, found {} of them",
                                  Printable(path_), field, tags));
    }
    if (list == "files" && !has_bytes) {
      return BadInput(fmt::format("{}: {}: bytes: expected the size of the file, found none",
                                  Printable(path_), field));
    }
    if (sealed.shape.size() > kDimsMax) {
      return BadInput(fmt::format("{}: {}: shape: expected at most {} sizes, found {}",
                                  Printable(path_), field, kDimsMax, sealed.shape.size()));
    }
    const auto read = Digest::FromHex(digest);
    if (!read) {
      return BadInput(fmt::format("{}: {}: expected a digest of 32 hexadecimal digits, found {}",
                                  Printable(path_), field, Quote(digest)));
    }
    sealed.digest = *read;
    return sealed;
  }

  Result<std::vector<oracle::JsonMember>> MembersOf(const std::string& field,
                                                    const oracle::JsonElement& value) {
    simdjson::dom::object object;
    if (value.get_object().get(object)) {
      return BadInput(fmt::format("{}: {}: expected an object, found {}", Printable(path_), field,
                                  oracle::Describe(value)));
    }
    return oracle::Members(path_ + ": " + field, object);
  }

  const std::string& path_;
  Seal seal_;
};

}  // namespace
}  // namespace seal_reader

Result<Seal> ReadSeal(const std::string& path) { return seal_reader::SealReader(path).Read(); }

}  // namespace shardproof
