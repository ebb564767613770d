// A checkpoint's seal: its tensors' digests, which do not depend on how they are cut, in a small
// JSON file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "verify/audit/audit.h"
#include "verify/audit/seal_reader.h"
#include "verify/evidence/line_file.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"
#include "verify/oracle/tree.h"

namespace shardproof {
namespace {

using oracle::Printable;
using oracle::Quote;

constexpr char kSealName[] = "shardproof.seal.json";

std::string TagText(const std::string& dtype, const std::vector<int64_t>& shape) {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ", "));
}

/// Names the files that are not there, but those of which a line says so already.
void NameLostFiles(const Seal& seal, AuditResult& audited) {
  std::set<std::string_view> present;
  for (const AuditedFile& file : audited.files) present.insert(file.name);
  const std::vector<std::string> told = audited.damage;
  for (const auto& file : seal.files) {
    const std::string& name = file.first;
    const auto names = [&](const std::string& line) { return line.find(name) != line.npos; };
    if (present.contains(name) || std::any_of(told.begin(), told.end(), names)) continue;
    audited.damage.push_back(fmt::format("file {}: sealed, found none", Quote(name)));
  }
}

}  // namespace

std::string SealPath(const std::string& checkpoint) {
  const std::string inside = checkpoint + "/" + kSealName;
  // What is mounted is not written to.
  const bool is_inside =
      oracle::IsMounted(checkpoint) ? oracle::Exists(inside) : oracle::IsDirectory(checkpoint);
  if (is_inside) return inside;
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
  const nlohmann::json document = {{"schema", kSealSchema},
                                   {"digest", kSealDigestName},
                                   {"tensors", std::move(tensors)},
                                   {"values", std::move(values)},
                                   {"files", std::move(files)}};
  return WriteFileAtomically(
      path, document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

Status HoldAgainstSeal(const std::string& path, AuditResult& audited) {
  SP_ASSIGN(Seal seal, ReadSeal(path));
  audited.seal = path;
  std::vector<std::string>& damage = audited.damage;
  const bool is_its_own = path == SealPath(audited.path);  // of these very files
  if (is_its_own) {
    // One file may be renamed, with its seal.
    if (!oracle::IsDirectory(audited.path) && audited.files.size() == 1 && seal.files.size() == 1) {
      auto only = seal.files.extract(seal.files.begin());
      only.key() = audited.files[0].name;
      seal.files.insert(std::move(only));
    }
    NameLostFiles(seal, audited);
  }
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
  // What is wrong with a tensor or value is said above, and names it.
  if (!is_its_own || !damage.empty()) return Ok();
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
  return Ok();
}

}  // namespace shardproof
