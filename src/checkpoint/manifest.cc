#include "src/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/checkpoint/write_whole.h"
#include "src/core/dtype.h"
#include "src/core/strict_json.h"
#include "src/model/host_bytes.h"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr int64_t kSchema = 1;
constexpr uint64_t kManifestBytesMax = uint64_t{1} << 30;
constexpr size_t kDimsMax = 64;
constexpr uint64_t kStagedBytesMax = 4u << 20;  // at a time

/// The object at `field`, which must be there.
Result<const json*> ObjectAt(const json& document, const char* field, const std::string& where) {
  const auto found = document.find(field);
  if (found != document.end() && found->is_object()) return &*found;
  return BadInput(fmt::format("{}: {}: expected an object, found {}", where, field,
                              found == document.end() ? "none" : Shown(*found)));
}

Result<Digest> DigestIn(const json& entry, const std::string& where) {
  if (!entry.is_object()) {
    return BadInput(fmt::format("{}: expected an object, found {}", where, Shown(entry)));
  }
  const auto found = entry.find("digest");
  const auto digest = found != entry.end() && found->is_string()
                          ? Digest::FromHex(found->get_ref<const std::string&>())
                          : std::nullopt;
  if (digest) return *digest;
  return BadInput(fmt::format("{}: expected a digest of 32 hexadecimal digits, found {}", where,
                              found == entry.end() ? "none" : Shown(*found)));
}

Result<ManifestTensor> TensorIn(const json& entry, const std::string& where) {
  ManifestTensor tensor;
  SP_ASSIGN(tensor.digest, DigestIn(entry, where));
  const auto dtype = entry.find("dtype");
  const auto shape = entry.find("shape");
  if (dtype == entry.end() || !dtype->is_string() || shape == entry.end() || !shape->is_array()) {
    return BadInput(where + ": expected a dtype and a shape, found " + Shown(entry));
  }
  tensor.dtype = dtype->get<std::string>();
  for (const json& size : *shape) {
    const bool is_size =
        size.is_number_unsigned() && size.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
    if (!is_size || tensor.shape.size() == kDimsMax) {
      return BadInput(fmt::format("{}: expected a shape of at most {} sizes, found {}", where,
                                  kDimsMax, Shown(*shape)));
    }
    tensor.shape.push_back(size.get<int64_t>());
  }
  return tensor;
}

Status ReadDigests(const json& document, const char* field, const std::string& where,
                   std::map<std::string, Digest>& digests) {
  SP_ASSIGN(const json* entries, ObjectAt(document, field, where));
  for (const auto& [name, entry] : entries->items()) {
    SP_ASSIGN(digests[name],
              DigestIn(entry, fmt::format("{}: {}: {}", where, field, ShownText(name))));
  }
  return Ok();
}

json DigestsToJson(const std::map<std::string, Digest>& digests) {
  json out = json::object();
  for (const auto& [name, digest] : digests) out[name] = {{"digest", digest.Hex()}};
  return out;
}

/// Calls visit(run, bytes of each of its stretches) for what a rank holds of a slot's image, a few
/// MiB at a time where the host does not read it as it lies.
template <typename Visit>
void VisitHeld(const Slot& slot, Visit visit) {
  const uint64_t element = slot.ElementBytes();
  const auto* data = reinterpret_cast<const char*>(HostBytes(slot));
  std::string staged;
  uint64_t local = 0;
  for (const ElementRun& run : slot.shard.runs) {
    const uint64_t length = run.length * element, stride = run.stride * element;
    const uint64_t begin = run.start * element;
    if (data != nullptr) {
      visit(sp_run{begin, length, run.count, stride, data + local, static_cast<int64_t>(length)});
      local += length * run.count;
      continue;
    }
    const uint64_t together = std::clamp<uint64_t>(kStagedBytesMax / std::max<uint64_t>(length, 1),
                                                   1, std::max<uint64_t>(run.count, 1));
    for (uint64_t i = 0; i < run.count; i += together) {
      const uint64_t count = std::min(together, run.count - i);
      for (uint64_t done = 0; done < length;) {
        const uint64_t part = count > 1 ? length : std::min(kStagedBytesMax, length - done);
        staged.resize(part * count);
        slot.CopyOut(local, staged.data(), staged.size());
        visit(sp_run{begin + i * stride + done, part, count, stride, staged.data(),
                     static_cast<int64_t>(part)});
        local += staged.size();
        done += part;
      }
    }
  }
}

/// Adds a run, of which only what lies in [start, start + length) counts, as if `start` were 0.
void AddWithin(const sp_run& run, uint64_t start, uint64_t length, sp_summary& sum) {
  if (run.count == 0 || run.length == 0) return;
  const uint64_t last = run.global_start + (run.count - 1) * run.global_stride + run.length;
  if (run.global_start >= start && last <= start + length) {
    sp_run within = run;
    within.global_start -= start;
    sp_digest_runs(&sum, &within, 1, SP_NO_FLOAT);
    return;
  }
  for (uint64_t i = 0; i < run.count; ++i) {
    const uint64_t begin = run.global_start + i * run.global_stride;
    const uint64_t from = std::max(begin, start);
    const uint64_t to = std::min(begin + run.length, start + length);
    if (from >= to) continue;
    const auto* data = static_cast<const char*>(run.data) + i * run.data_stride + (from - begin);
    const sp_run within{from - start, to - from, 1, 0, data, 0};
    sp_digest_runs(&sum, &within, 1, SP_NO_FLOAT);
  }
}

void Append(const Digest& digest, std::vector<int64_t>& numbers) {
  numbers.push_back(static_cast<int64_t>(digest.lane0));
  numbers.push_back(static_cast<int64_t>(digest.lane1));
}

/// What a rank adds to the digests of a manifest, in its order.
void AppendOwn(const Sealing& sealing, const std::string& directory, const DigestedFiles& written,
               const Stages& stages, std::vector<int64_t>& numbers) {
  const Slot* slot = nullptr;  // of the key before: names of a tied tensor follow each other
  uint64_t start = 0, length = 0;
  Digest digest;
  for (const SealedTensor& tensor : sealing.tensors) {
    if (tensor.digest) {
      digest = *tensor.digest;
    } else if (tensor.slot != slot || tensor.start != start || tensor.length != length) {
      digest = tensor.is_own ? stages.digest(*tensor.slot, tensor.start, tensor.length) : Digest();
    }
    slot = tensor.slot;
    start = tensor.start;
    length = tensor.length;
    Append(digest, numbers);
  }
  for (const std::string& file : sealing.files) Append(written.Of(directory + file), numbers);
}

}  // namespace

std::string ManifestText(const Manifest& manifest) {
  json tensors = json::object();
  for (const auto& [name, tensor] : manifest.tensors) {
    tensors[name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"digest", tensor.digest.Hex()}};
  }
  const json document = {{"schema", kSchema},
                         {"digest", "src/digest/SPECIFICATION.md"},
                         {"tensors", std::move(tensors)},
                         {"values", DigestsToJson(manifest.values)},
                         {"files", DigestsToJson(manifest.files)}};
  return document.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<Manifest> ParseManifest(const std::string& text, const std::string& where) {
  SP_ASSIGN(const json document, ParseStrictObject(text, where));
  const auto schema = document.find("schema");
  if (schema == document.end() || *schema != kSchema) {
    return BadInput(fmt::format("{}: schema: expected {}, found {}", where, kSchema,
                                schema == document.end() ? "none" : Shown(*schema)));
  }
  Manifest manifest;
  SP_ASSIGN(const json* tensors, ObjectAt(document, "tensors", where));
  for (const auto& [name, entry] : tensors->items()) {
    SP_ASSIGN(manifest.tensors[name],
              TensorIn(entry, fmt::format("{}: tensors: {}", where, ShownText(name))));
  }
  SP_TRY(ReadDigests(document, "values", where, manifest.values));
  SP_TRY(ReadDigests(document, "files", where, manifest.files));
  return manifest;
}

Result<Manifest> ReadManifest(FileSystem& files, const std::string& directory) {
  const std::string path = directory + "/" + kManifestName;
  SP_ASSIGN(const std::string text, files.ReadText(path, kManifestBytesMax));
  return ParseManifest(text, path);
}

Digest DigestOfText(std::string_view text) {
  sp_summary sum{};
  const sp_run run{0, text.size(), 1, 0, text.data(), 0};
  sp_digest_runs(&sum, &run, 1, SP_NO_FLOAT);
  return Digest(sum.digest);
}

Digest DigestOfSlot(const Slot& slot, uint64_t start, uint64_t length) {
  sp_summary sum{};
  VisitHeld(slot, [&](const sp_run& run) { AddWithin(run, start, length, sum); });
  return Digest(sum.digest);
}

Status WriteManifests(const std::vector<Sealing>& sealings, const std::string& staging,
                      const DigestedFiles& written, const Stages& stages, World& world) {
  const auto directory_of = [&](const Sealing& sealing) {
    return staging + "/" + (sealing.folder.empty() ? "" : sealing.folder + "/");
  };
  std::vector<int64_t> numbers;
  for (const Sealing& sealing : sealings) {
    AppendOwn(sealing, directory_of(sealing), written, stages, numbers);
  }
  SP_ASSIGN(numbers, world.communicator->Sum(std::move(numbers), "digests of what is saved"));
  if (world.rank() != 0) return Ok();
  size_t next = 0;
  const auto take = [&] {
    const Digest digest(static_cast<uint64_t>(numbers[next]),
                        static_cast<uint64_t>(numbers[next + 1]));
    next += 2;
    return digest;
  };
  for (const Sealing& sealing : sealings) {
    Manifest manifest;
    manifest.values = sealing.values;
    for (const SealedTensor& tensor : sealing.tensors) {
      manifest.tensors[tensor.key] = {DtypeName(tensor.slot->spec.dtype), tensor.shape, take()};
    }
    for (const std::string& file : sealing.files) {
      const Digest digest = take();
      if (world.files->Exists(directory_of(sealing) + file)) manifest.files[file] = digest;
    }
    SP_TRY(WriteWhole(*world.files, directory_of(sealing) + kManifestName, ManifestText(manifest)));
  }
  return Ok();
}

}  // namespace shardproof
