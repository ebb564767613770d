#include "src/manifest/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/aten/dtype.h"
#include "src/core/strict_json.h"
#include "src/model/host_bytes.h"
#include "src/storage/write_whole.h"

namespace shardproof {
namespace {

using nlohmann::json;

constexpr int64_t kSchema = 2;
constexpr uint64_t kManifestBytesMax = uint64_t{1} << 30;
constexpr size_t kDimsMax = 64;

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

Result<ManifestFile> FileIn(const json& entry, const std::string& where) {
  ManifestFile file;
  SP_ASSIGN(file.digest, DigestIn(entry, where));
  const auto bytes = entry.find("bytes");
  if (bytes == entry.end() || !bytes->is_number_unsigned()) {
    return BadInput(fmt::format("{}: bytes: expected the size of the file, found {}", where,
                                bytes == entry.end() ? "none" : Shown(*bytes)));
  }
  file.bytes = bytes->get<uint64_t>();
  return file;
}

/// Reads every entry of the object at `field` by read(entry, where).
template <typename Entry, typename Read>
Status ReadEntries(const json& document, const char* field, const std::string& where,
                   std::map<std::string, Entry>& entries, Read read) {
  SP_ASSIGN(const json* object, ObjectAt(document, field, where));
  for (const auto& [name, entry] : object->items()) {
    SP_ASSIGN(entries[name], read(entry, fmt::format("{}: {}: {}", where, field, ShownText(name))));
  }
  return Ok();
}

/// Stretches of a global image that follow each other in a shard, from its byte `local` on.
struct HeldRun {
  uint64_t begin, length, count, stride;
  uint64_t local;
};

/// Calls visit(HeldRun) for what the bytes `local` of a shard are, in their order.
template <typename Visit>
void VisitRuns(const Shard& shard, uint64_t element, ByteSpan local, Visit visit) {
  uint64_t at = 0;
  for (const ElementRun& run : shard.runs) {
    const uint64_t length = run.length * element, stride = run.stride * element;
    const uint64_t end = at + length * run.count;
    uint64_t from = std::clamp(local.begin, at, end) - at;
    const uint64_t to = std::clamp(local.end, at, end) - at;
    while (from < to) {
      const uint64_t number = from / length, done = from % length;
      const bool is_whole = done == 0 && to - from >= length;
      const HeldRun held{.begin = run.start * element + number * stride + done,
                         .length = is_whole ? length : std::min(length - done, to - from),
                         .count = is_whole ? (to - from) / length : 1,
                         .stride = stride,
                         .local = at + from};
      visit(held);
      from += held.length * held.count;
    }
    at = end;
  }
}

/// Calls visit(run, bytes of each of its stretches) for what a rank holds of a slot's image in the
/// bytes `local` of its shard, a few MiB at a time where the host does not read it as it lies.
template <typename Visit>
void VisitHeld(const Slot& slot, ByteSpan local, Visit visit) {
  const auto* data = reinterpret_cast<const char*>(HostBytes(slot));
  std::string staged;
  VisitRuns(slot.shard, slot.ElementBytes(), local, [&](const HeldRun& run) {
    if (data != nullptr) {
      visit(sp_run{run.begin, run.length, run.count, run.stride, data + run.local,
                   static_cast<int64_t>(run.length)});
      return;
    }
    const uint64_t together = std::clamp<uint64_t>(kStagedBytesMax / run.length, 1, run.count);
    uint64_t at = run.local;
    for (uint64_t i = 0; i < run.count; i += together) {
      const uint64_t count = std::min(together, run.count - i);
      for (uint64_t done = 0; done < run.length;) {
        const uint64_t part = count > 1 ? run.length : std::min(kStagedBytesMax, run.length - done);
        staged.resize(part * count);
        slot.CopyOut(at, staged.data(), staged.size());
        visit(sp_run{run.begin + i * run.stride + done, part, count, run.stride, staged.data(),
                     static_cast<int64_t>(part)});
        at += staged.size();
        done += part;
      }
    }
  });
}

/// Adds a run, of which only what lies in `image` counts, as if that began at 0.
void AddWithin(const sp_run& run, ByteSpan image, sp_summary& sum) {
  if (run.count == 0 || run.length == 0) return;
  const uint64_t last = run.global_start + (run.count - 1) * run.global_stride + run.length;
  if (run.global_start >= image.begin && last <= image.end) {
    sp_run within = run;
    within.global_start -= image.begin;
    sp_digest_runs(&sum, &within, 1, SP_NO_FLOAT);
    return;
  }
  for (uint64_t i = 0; i < run.count; ++i) {
    const uint64_t begin = run.global_start + i * run.global_stride;
    const uint64_t from = std::max(begin, image.begin);
    const uint64_t to = std::min(begin + run.length, image.end);
    if (from >= to) continue;
    const auto* data = static_cast<const char*>(run.data) + i * run.data_stride + (from - begin);
    const sp_run within{from - image.begin, to - from, 1, 0, data, 0};
    sp_digest_runs(&sum, &within, 1, SP_NO_FLOAT);
  }
}

void Append(const Digest& digest, std::vector<int64_t>& numbers) {
  numbers.push_back(static_cast<int64_t>(digest.lane0));
  numbers.push_back(static_cast<int64_t>(digest.lane1));
}

template <typename Map>
typename Map::mapped_type FoundOrNone(const Map& map, const typename Map::key_type& key) {
  const auto found = map.find(key);
  return found == map.end() ? typename Map::mapped_type() : found->second;
}

/// With a slash at its end.
std::string DirectoryOf(const Sealing& sealing, const std::string& staging) {
  return staging + "/" + (sealing.folder.empty() ? "" : sealing.folder + "/");
}

/// What a rank adds to the numbers of a manifest, in its order.
void AppendOwn(const Sealing& sealing, const std::string& directory, const SaveDigests& written,
               std::vector<int64_t>& numbers) {
  for (const SealedTensor& tensor : sealing.tensors) {
    Append(FoundOrNone(written.tensors, {tensor.slot, tensor.image}), numbers);
  }
  for (const std::string& name : sealing.files) {
    const ManifestFile file = FoundOrNone(written.files, directory + name);
    Append(file.digest, numbers);
    numbers.push_back(static_cast<int64_t>(file.bytes));
  }
}

}  // namespace

std::string ManifestText(const Manifest& manifest) {
  json tensors = json::object();
  for (const auto& [name, tensor] : manifest.tensors) {
    tensors[name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"digest", tensor.digest.Hex()}};
  }
  json values = json::object();
  for (const auto& [name, digest] : manifest.values) values[name] = {{"digest", digest.Hex()}};
  json files = json::object();
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"bytes", file.bytes}, {"digest", file.digest.Hex()}};
  }
  const json document = {{"schema", kSchema},
                         {"digest", "src/digest/SPECIFICATION.md"},
                         {"tensors", std::move(tensors)},
                         {"values", std::move(values)},
                         {"files", std::move(files)}};
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
  SP_TRY(ReadEntries(document, "tensors", where, manifest.tensors, TensorIn));
  SP_TRY(ReadEntries(document, "values", where, manifest.values, DigestIn));
  SP_TRY(ReadEntries(document, "files", where, manifest.files, FileIn));
  return manifest;
}

Result<Manifest> ReadManifest(FileSystem& files, const std::string& directory) {
  const std::string path = directory + "/" + kManifestName;
  SP_ASSIGN(const std::string text, files.ReadText(path, kManifestBytesMax));
  return ParseManifest(text, path);
}

Digest DigestOfFrame(uint64_t offset, std::string_view bytes) {
  sp_summary sum{};
  const sp_run run{offset, bytes.size(), 1, 0, bytes.data(), 0};
  sp_digest_runs(&sum, &run, 1, SP_NO_FLOAT);
  return Digest(sum.digest);
}

Digest DigestOfText(std::string_view text) { return DigestOfFrame(0, text); }

Digest DigestOfSlot(const Slot& slot, ByteSpan image, ByteSpan local) {
  sp_summary sum{};
  VisitHeld(slot, local, [&](const sp_run& run) { AddWithin(run, image, sum); });
  return Digest(sum.digest);
}

void SaveDigests::AddFrame(const std::string& path, uint64_t offset, std::string_view bytes) {
  files[path].digest += DigestOfFrame(offset, bytes);
}

Result<SaveSums> SumOverRanks(const std::vector<Sealing>& sealings, const std::string& staging,
                              const SaveDigests& written, bool is_written, World& world) {
  std::vector<int64_t> numbers = {is_written ? 0 : 1};
  for (const Sealing& sealing : sealings) {
    AppendOwn(sealing, DirectoryOf(sealing, staging), written, numbers);
  }
  SP_ASSIGN(numbers, world.communicator->Sum(std::move(numbers), "digests of what is saved"));
  const int64_t failed_ranks = numbers.front();
  numbers.erase(numbers.begin());
  return SaveSums{failed_ranks, std::move(numbers)};
}

Status WriteManifests(const std::vector<Sealing>& sealings, const std::string& staging,
                      const SaveSums& sums, FileSystem& files) {
  const std::vector<int64_t>& numbers = sums.numbers;
  size_t next = 0;
  const auto take = [&] {
    const Digest digest(static_cast<uint64_t>(numbers[next]),
                        static_cast<uint64_t>(numbers[next + 1]));
    next += 2;
    return digest;
  };
  for (const Sealing& sealing : sealings) {
    const std::string directory = DirectoryOf(sealing, staging);
    Manifest manifest;
    manifest.values = sealing.values;
    for (const SealedTensor& tensor : sealing.tensors) {
      manifest.tensors[tensor.key] = {DtypeName(tensor.slot->spec.dtype), tensor.shape, take()};
    }
    for (const std::string& name : sealing.files) {
      const Digest digest = take();
      const ManifestFile file{static_cast<uint64_t>(numbers[next++]), digest};
      // Its size says that some rank wrote it. It is not looked up: a shared file system may not
      // yet show this rank what another has made.
      if (file.bytes > 0) manifest.files[name] = file;
    }
    SP_TRY(WriteWhole(files, directory + kManifestName, ManifestText(manifest)));
  }
  return Ok();
}

}  // namespace shardproof
