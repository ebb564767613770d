// Which files a checkpoint consists of, and where its tensors lie in them.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include "verify/oracle/header.h"
#include "verify/oracle/json.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/oracle.h"
#include "verify/oracle/quote.h"

namespace shardproof::oracle {
namespace {

namespace fs = std::filesystem;

constexpr char kSingleName[] = "model.safetensors";
constexpr char kAdapterName[] = "adapter_model.safetensors";
constexpr uint64_t kIndexBytesMax = 100'000'000;

/// The file's tensors; `file` is its name within the checkpoint.
Status Append(const std::string& path, const std::string& file, Damage* damage,
              std::vector<TensorLocation>& tensors) {
  SP_ASSIGN(const auto input, InputFile::Open(path));
  bool parsed = false;
  auto found = ReadHeader(*input, file, &parsed);
  if (!found.ok()) return parsed ? Note(found.error(), damage) : Status(found.error());
  std::move(found.value().begin(), found.value().end(), std::back_inserter(tensors));
  return Ok();
}

Result<std::vector<TensorLocation>> LocateIndexed(const std::string& directory,
                                                  const std::string& index_name, Damage* damage) {
  const std::string index_path = directory + "/" + index_name;
  SP_ASSIGN(const auto index, ReadIndex(index_path));
  std::set<std::string> files;
  for (const auto& [key, file] : index) files.insert(file);
  std::vector<TensorLocation> tensors;
  std::set<std::string> unreadable;
  for (const std::string& file : files) {
    const Status status = Append(directory + "/" + file, file, damage, tensors);
    if (status.ok()) continue;
    if (Exists(directory + "/" + file)) unreadable.insert(file);
    SP_TRY(Note(status.error().While(Printable(index_path) + " names it"), damage));
  }
  std::set<std::pair<std::string_view, std::string_view>> present;
  for (const TensorLocation& tensor : tensors) {
    const auto listed = index.find(tensor.name);
    if (listed == index.end() || listed->second != tensor.file) {
      SP_TRY(Note(BadInput(fmt::format(
                      "{}: {} holds key {}: expected weight_map to say so, found {}",
                      Printable(index_path), Quote(tensor.file), Quote(tensor.name),
                      listed == index.end() ? "no entry" : "the file " + Quote(listed->second))),
                  damage));
    }
    present.emplace(tensor.name, tensor.file);
  }
  for (const auto& [key, file] : index) {
    if (!present.count({key, file}) && !unreadable.contains(file)) {
      SP_TRY(
          Note(BadInput(fmt::format("{}: weight_map {}: expected the key in {}, found none there",
                                    Printable(index_path), Quote(key), Quote(file))),
               damage));
    }
  }
  return tensors;
}

/// Whether a file may have the tensors of another of these in another dtype or state of training,
/// as its name says: "model.fp16.safetensors" beside "model.safetensors".
bool IsNamedAsVariant(const std::string& file, const std::vector<std::string>& files) {
  const fs::path stem = fs::path(file).stem();
  return stem.has_extension() && std::find(files.begin(), files.end(),
                                           stem.stem().string() + ".safetensors") != files.end();
}

Result<std::vector<TensorLocation>> LocateAll(const std::string& directory, Damage* damage) {
  std::vector<std::string> files;
  SP_TRY(List(directory, [&](const DirectoryEntry& entry) {
    if (fs::path(entry.name).extension() == ".safetensors") files.push_back(entry.name);
  }));
  if (files.empty()) {
    return BadInput(fmt::format("{}: expected .safetensors files in the directory, found none",
                                Printable(directory)));
  }
  std::sort(files.begin(), files.end());
  std::vector<TensorLocation> tensors;
  std::vector<std::string> variants;
  for (const std::string& file : files) {
    if (IsNamedAsVariant(file, files)) {
      variants.push_back(file);
    } else {
      SP_TRY(Append(directory + "/" + file, file, damage, tensors));
    }
  }
  std::set<std::string> keys;
  for (const TensorLocation& tensor : tensors) keys.insert(tensor.name);
  for (const std::string& file : variants) {
    std::vector<TensorLocation> own;
    Damage of_variant;  // what is wrong with a variant is no damage to the model
    const bool is_read = Append(directory + "/" + file, file, &of_variant, own).ok();
    const bool is_one = !is_read || own.empty() ||
                        std::any_of(own.begin(), own.end(), [&](const TensorLocation& tensor) {
                          return keys.contains(tensor.name);
                        });
    if (!is_one) SP_TRY(Append(directory + "/" + file, file, damage, tensors));
  }
  return tensors;
}

/// A dangling link counts as there: it is reported, not passed over.
bool Holds(const std::string& directory, const std::string& name) {
  return IsThere(directory + "/" + name);
}

/// Whether a directory is a model in one file, where an index says nothing.
bool IsSingle(const std::string& directory, const std::string& index) {
  return index == kModelIndexName && Holds(directory, kSingleName);
}

Result<std::vector<TensorLocation>> LocateUnsorted(const std::string& checkpoint,
                                                   Damage* damage = nullptr,
                                                   const std::string& index = kModelIndexName) {
  std::vector<TensorLocation> tensors;
  if (!IsDirectory(checkpoint)) {
    SP_TRY(Append(checkpoint, fs::path(checkpoint).filename().string(), damage, tensors));
    return tensors;
  }
  if (IsSingle(checkpoint, index)) {
    SP_TRY(Append(checkpoint + "/" + kSingleName, kSingleName, damage, tensors));
    return tensors;
  }
  return Holds(checkpoint, index) ? LocateIndexed(checkpoint, index, damage)
                                  : LocateAll(checkpoint, damage);
}

/// The layer that a key of an adapter's file is a copy of, "lm_head.weight": PEFT writes and reads
/// one where the output layer has an adapter. Empty if it is none.
std::string CopiedLayer(const std::string& key) {
  constexpr std::string_view kBefore = "base_model.model.";
  if (!key.starts_with(kBefore)) return "";
  for (const std::string leaf : {".weight", ".bias"}) {
    const std::string end = ".base_layer" + leaf;
    if (!key.ends_with(end)) continue;
    return key.substr(kBefore.size(), key.size() - kBefore.size() - end.size()) + leaf;
  }
  return "";
}

/// Sorted by name, and every name once.
Result<std::vector<TensorLocation>> Sorted(const std::string& checkpoint,
                                           std::vector<TensorLocation> tensors,
                                           Damage* damage = nullptr) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorLocation& a, const TensorLocation& b) {
    return std::tie(a.name, a.file) < std::tie(b.name, b.file);
  });
  const auto twice = std::adjacent_find(
      tensors.begin(), tensors.end(),
      [](const TensorLocation& a, const TensorLocation& b) { return a.name == b.name; });
  if (twice != tensors.end()) {
    SP_TRY(Note(BadInput(fmt::format("{}: expected key {} in one file, found it in {} and {}",
                                     Printable(checkpoint), Quote(twice->name), Quote(twice->file),
                                     Quote((twice + 1)->file))),
                damage));
    const auto same = [](const TensorLocation& a, const TensorLocation& b) {
      return a.name == b.name;
    };
    tensors.erase(std::unique(tensors.begin(), tensors.end(), same), tensors.end());
  }
  return tensors;
}

}  // namespace

Status Note(Error error, Damage* damage) {
  if (damage == nullptr || error.code == ErrorCode::kUnsupported) return error;
  damage->push_back(std::move(error.message));
  return Ok();
}

std::string IndexOf(const std::string& checkpoint, const std::string& index) {
  const bool is_indexed =
      IsDirectory(checkpoint) && !IsSingle(checkpoint, index) && Holds(checkpoint, index);
  return is_indexed ? checkpoint + "/" + index : "";
}

Result<std::map<std::string, std::string>> ReadIndex(const std::string& path) {
  SP_ASSIGN(const std::string text, ReadWholeFile(path, kIndexBytesMax));
  simdjson::dom::parser parser;
  SP_ASSIGN(const simdjson::dom::object root, ParseObject(parser, path, text));
  SP_ASSIGN(const std::vector<JsonMember> members, Members(path, root));
  const auto found = std::find_if(members.begin(), members.end(),
                                  [](const JsonMember& m) { return m.key == "weight_map"; });
  simdjson::dom::object weight_map;
  if (found == members.end() || found->value.get_object().get(weight_map)) {
    return BadInput(fmt::format("{}: weight_map: expected an object, found {}", Printable(path),
                                found == members.end() ? "nothing" : Describe(found->value)));
  }
  SP_ASSIGN(const std::vector<JsonMember> entries, Members(path + ": weight_map", weight_map));
  std::map<std::string, std::string> files;
  for (const JsonMember& entry : entries) {
    const std::string field = "weight_map " + Quote(entry.key);
    SP_ASSIGN(std::string_view file, AsString(path, field, entry.value));
    while (file.starts_with("./")) file.remove_prefix(2);  // as some writers put it
    if (!StaysInside(file)) {
      return BadInput(fmt::format("{}: {}: expected a file inside the directory, found {}",
                                  Printable(path), field, Quote(file)));
    }
    files.emplace(entry.key, file);
  }
  return files;
}

Result<std::vector<TensorLocation>> Locate(const std::string& checkpoint, Damage* damage,
                                           const std::string& index) {
  SP_ASSIGN(std::vector<TensorLocation> tensors, LocateUnsorted(checkpoint, damage, index));
  return Sorted(checkpoint, std::move(tensors), damage);
}

Result<std::vector<TensorLocation>> LocateSource(const Case& test_case, const std::string& source) {
  std::vector<TensorLocation> tensors;
  if (!test_case.model.from_scratch) {
    const bool named = Holds(source, kSingleName) || Holds(source, kModelIndexName);
    // Of a model of one's own the files may have any name.
    const bool is_own = !test_case.model.factory.empty();
    if (IsDirectory(source) && !named && !is_own) {
      return BadInput(fmt::format("{}: expected {} or {}, found neither", Printable(source),
                                  kSingleName, kModelIndexName));
    }
    SP_ASSIGN(tensors, LocateUnsorted(source));
  }
  const std::string& adapter = test_case.model.adapter;
  if (!adapter.empty()) {
    const std::string path = fs::absolute(adapter).string() + "/" + kAdapterName;
    SP_ASSIGN(const auto input, InputFile::Open(path));
    SP_ASSIGN(std::vector<TensorLocation> found, ReadHeader(*input, path));
    std::set<std::string> keys;
    for (const TensorLocation& tensor : found) keys.insert(tensor.name);
    for (TensorLocation& tensor : found) {
      const std::string layer = CopiedLayer(tensor.name);
      const std::string module = layer.substr(0, layer.rfind('.'));
      if (layer.empty() || !keys.contains("base_model.model." + module + ".lora_A.weight"))
        continue;
      tensor.name = layer;
      std::erase_if(tensors, [&](const TensorLocation& base) { return base.name == layer; });
    }
    std::move(found.begin(), found.end(), std::back_inserter(tensors));
  }
  return Sorted(source, std::move(tensors));
}

Result<std::vector<TensorLocation>> LocateSaved(const Case& test_case, const std::string& saved) {
  SP_ASSIGN(std::vector<TensorLocation> tensors, LocateUnsorted(saved));
  if (test_case.subject == "reference" &&
      (test_case.model.lora || !test_case.model.adapter.empty())) {
    const std::string file = std::string("adapter/") + kAdapterName;
    SP_TRY(Append(saved + "/" + file, file, nullptr, tensors));
  }
  return Sorted(saved, std::move(tensors));
}

std::optional<uint64_t> ClaimedSize(const std::string& checkpoint, bool& indexed) {
  const std::string index = IndexOf(checkpoint);
  indexed = !index.empty();
  if (!indexed) return std::nullopt;
  simdjson::dom::parser parser;
  const auto root = FindJson(parser, index, kIndexBytesMax);
  uint64_t bytes = 0;
  if (!root || (*root)["metadata"]["total_size"].get(bytes)) return std::nullopt;
  return bytes;
}

std::string PathOf(const std::string& checkpoint, const TensorLocation& where) {
  if (where.file.starts_with('/')) return where.file;
  return IsDirectory(checkpoint) ? checkpoint + "/" + where.file : checkpoint;
}

Result<std::string> ReadBytes(const std::string& checkpoint, const TensorLocation& where,
                              uint64_t start, uint64_t length) {
  if (start > where.byte_length || length > where.byte_length - start) {
    return BadInput(fmt::format("tensor {}: expected a range within its {} bytes, found [{}, +{})",
                                Quote(where.name), where.byte_length, start, length));
  }
  SP_ASSIGN(const auto file, InputFile::Open(PathOf(checkpoint, where)));
  // Checked again before memory is taken: the file may have changed since it was located.
  if (where.file_offset > file->size() || where.byte_length > file->size() - where.file_offset) {
    return BadInput(fmt::format("{}: expected tensor {} to end at offset {}, the file has {} bytes",
                                Printable(file->path()), Quote(where.name),
                                where.file_offset + where.byte_length, file->size()));
  }
  std::string bytes(length, '\0');
  SP_TRY(file->ReadAt(where.file_offset + start, length, bytes.data()));
  return bytes;
}

}  // namespace shardproof::oracle
