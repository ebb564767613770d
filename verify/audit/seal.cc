// A checkpoint's seal: its tensors' digests, which do not depend on how they are cut, in a small
// JSON file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "verify/audit/audit.h"
#include "verify/evidence/line_file.h"
#include "verify/oracle/input_file.h"
#include "verify/oracle/json.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

using oracle::Printable;
using oracle::Quote;

constexpr int64_t kSchema = 2;
constexpr char kDigestName[] = "src/digest/SPECIFICATION.md";
constexpr char kSealName[] = "shardproof.seal.json";
constexpr uint64_t kSealBytesMax = uint64_t{1} << 30;
constexpr size_t kDimsMax = 64;

/// What a seal says of one tensor, value or file.
struct Sealed {
  std::string dtype;  ///< of a tensor, and its shape
  std::vector<int64_t> shape;
  int64_t bytes = 0;  ///< of a file
  Digest digest;
};

std::string TagText(const std::string& dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

/// Reads the fields of a seal, each checked.
class SealReader {
 public:
  explicit SealReader(const std::string& path) : path_(path) {}

  Status Read() {
    SP_ASSIGN(const std::string text, oracle::ReadWholeFile(path_, kSealBytesMax));
    simdjson::dom::parser parser;
    SP_ASSIGN(const simdjson::dom::object root, oracle::ParseObject(parser, path_, text));
    SP_ASSIGN(const auto members, oracle::Members(path_, root));
    int found = 0;
    for (const oracle::JsonMember& member : members) {
      if (member.key == "schema") {
        SP_TRY(CheckSchema(member.value));
        ++found;
      } else if (member.key == "digest") {
        SP_ASSIGN(const std::string_view digest, oracle::AsString(path_, "digest", member.value));
        if (digest != kDigestName) {
          return BadInput(fmt::format("{}: digest: expected '{}', found {}", Printable(path_),
                                      kDigestName, Quote(std::string(digest))));
        }
      } else if (member.key == "tensors" || member.key == "values" || member.key == "files") {
        auto& out = member.key == "tensors" ? tensors : member.key == "values" ? values : files;
        SP_TRY(ReadEntries(std::string(member.key), member.value, out));
        ++found;
      }
    }
    if (found == 4) return Ok();
    return BadInput(
        fmt::format("{}: expected a seal with schema, tensors, values and files, found {} of them",
                    Printable(path_), found));
  }

  std::map<std::string, Sealed> tensors;
  std::map<std::string, Sealed> values;
  std::map<std::string, Sealed> files;

 private:
  Status CheckSchema(const oracle::JsonElement& value) const {
    const auto schema = oracle::AsInteger(path_, "schema", value, 1, kSchema);
    if (!schema.ok() || schema.value() == kSchema) return schema.ok() ? Ok() : schema.error();
    return BadInput(
        fmt::format("{}: schema: expected {}, found {}: an older version wrote it; seal --replace "
                    "writes it anew",
                    Printable(path_), kSchema, schema.value()));
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
};

}  // namespace

std::string SealPath(const std::string& checkpoint) {
  std::error_code ignored;
  if (std::filesystem::is_directory(checkpoint, ignored)) return checkpoint + "/" + kSealName;
  return checkpoint + "." + kSealName;
}

Status WriteSeal(const AuditResult& audited, const std::string& path) {
  if (audited.IsDamaged()) {
    return BadInput(fmt::format("{}: not sealed because it is not sound: {}",
                                Printable(audited.path), audited.damage.front()));
  }
  nlohmann::json tensors = nlohmann::json::object();
  for (const AuditedTensor& tensor : audited.tensors) {
    tensors[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"digest", tensor.digest.Hex()}};
  }
  nlohmann::json values = nlohmann::json::object();
  for (const AuditedValue& value : audited.values)
    values[value.name] = {{"digest", value.digest.Hex()}};
  nlohmann::json files = nlohmann::json::object();
  for (const AuditedFile& file : audited.files) {
    files[file.name] = {{"bytes", file.bytes}, {"digest", file.digest.Hex()}};
  }
  const nlohmann::json document = {{"schema", kSchema},
                                   {"digest", kDigestName},
                                   {"tensors", std::move(tensors)},
                                   {"values", std::move(values)},
                                   {"files", std::move(files)}};
  return WriteFileAtomically(
      path, document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

Status HoldAgainstSeal(const std::string& path, AuditResult& audited) {
  SealReader seal(path);
  SP_TRY(seal.Read());
  audited.seal = path;
  std::vector<std::string>& damage = audited.damage;
  for (const AuditedTensor& tensor : audited.tensors) {
    const auto sealed = seal.tensors.extract(tensor.name);
    const std::string what = "tensor " + Quote(tensor.name);
    if (sealed.empty()) {
      damage.push_back(what + ": not in the seal");
    } else if (sealed.mapped().dtype != tensor.dtype || sealed.mapped().shape != tensor.shape) {
      damage.push_back(fmt::format("{}: sealed as {}, found {}", what,
                                   TagText(sealed.mapped().dtype, sealed.mapped().shape),
                                   TagText(tensor.dtype, tensor.shape)));
    } else if (sealed.mapped().digest != tensor.digest) {
      damage.push_back(
          fmt::format("{}: the bytes differ from the sealed ones (expected digest {}, found {})",
                      what, sealed.mapped().digest.Hex(), tensor.digest.Hex()));
    }
  }
  for (const AuditedValue& value : audited.values) {
    const auto sealed = seal.values.extract(value.name);
    const std::string what = "value " + Quote(value.name);
    if (sealed.empty()) {
      damage.push_back(what + ": not in the seal");
    } else if (sealed.mapped().digest != value.digest) {
      damage.push_back(
          fmt::format("{}: differs from the sealed value, found {}", what, Printable(value.text)));
    }
  }
  for (const auto& [name, sealed] : seal.tensors) {
    damage.push_back(fmt::format("tensor {}: sealed as {}, found none", Quote(name),
                                 TagText(sealed.dtype, sealed.shape)));
  }
  for (const auto& [name, sealed] : seal.values) {
    damage.push_back(fmt::format("value {}: sealed, found none", Quote(name)));
  }
  // Its own seal is of these very files. What is wrong with a tensor or value is said above, and
  // names it.
  if (path != SealPath(audited.path) || !damage.empty()) return Ok();
  for (const AuditedFile& file : audited.files) {
    const auto sealed = seal.files.extract(file.name);
    if (sealed.empty()) {
      damage.push_back(fmt::format("file {}: not in the seal", Quote(file.name)));
    } else if (static_cast<uint64_t>(sealed.mapped().bytes) != file.bytes) {
      damage.push_back(fmt::format("file {}: sealed with {} bytes, found {}", Quote(file.name),
                                   sealed.mapped().bytes, file.bytes));
    } else if (sealed.mapped().digest != file.digest) {
      damage.push_back(fmt::format(
          "file {}: its content other than tensors and values differs from what was sealed",
          Quote(file.name)));
    }
  }
  for (const auto& [name, sealed] : seal.files) {
    damage.push_back(fmt::format("file {}: sealed, found none", Quote(name)));
  }
  return Ok();
}

}  // namespace shardproof
