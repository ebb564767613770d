// Which files a checkpoint consists of, and where its tensors lie in them.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include "verify/oracle/header.h"
#include "verify/oracle/json.h"
#include "verify/oracle/oracle.h"
#include "verify/oracle/quote.h"

namespace shardproof::oracle {
namespace {

namespace fs = std::filesystem;

constexpr char kSingleName[] = "model.safetensors";
constexpr char kIndexName[] = "model.safetensors.index.json";
constexpr char kAdapterName[] = "adapter_model.safetensors";
constexpr uint64_t kIndexBytesMax = 100'000'000;

/// A relative path that stays inside the directory, part by part.
bool StaysInside(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.find('\0') != std::string_view::npos) {
    return false;
  }
  for (const fs::path& part : fs::path(name)) {
    if (part == ".." || part == "." || part.empty()) return false;
  }
  return true;
}

/// Key to file, as the index says.
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
    SP_ASSIGN(const std::string_view file, AsString(path, field, entry.value));
    if (!StaysInside(file)) {
      return BadInput(fmt::format("{}: {}: expected a file inside the directory, found {}",
                                  Printable(path), field, Quote(file)));
    }
    files.emplace(entry.key, file);
  }
  return files;
}

Status Append(const std::string& directory, const std::string& file,
              std::vector<TensorLocation>& tensors) {
  SP_ASSIGN(const auto input, InputFile::Open(directory + "/" + file));
  SP_ASSIGN(std::vector<TensorLocation> found, ReadHeader(*input, file));
  std::move(found.begin(), found.end(), std::back_inserter(tensors));
  return Ok();
}

Result<std::vector<TensorLocation>> LocateIndexed(const std::string& directory) {
  const std::string index_path = directory + "/" + kIndexName;
  SP_ASSIGN(const auto index, ReadIndex(index_path));
  std::set<std::string> files;
  for (const auto& [key, file] : index) files.insert(file);
  std::vector<TensorLocation> tensors;
  for (const std::string& file : files) {
    const Status status = Append(directory, file, tensors);
    if (!status.ok()) return status.error().While(Printable(index_path) + " names it");
  }
  std::set<std::pair<std::string_view, std::string_view>> present;
  for (const TensorLocation& tensor : tensors) {
    const auto listed = index.find(tensor.name);
    if (listed == index.end() || listed->second != tensor.file) {
      return BadInput(
          fmt::format("{}: {} holds key {}: expected weight_map to say so, found {}",
                      Printable(index_path), Quote(tensor.file), Quote(tensor.name),
                      listed == index.end() ? "no entry" : "the file " + Quote(listed->second)));
    }
    present.emplace(tensor.name, tensor.file);
  }
  for (const auto& [key, file] : index) {
    if (!present.count({key, file})) {
      return BadInput(fmt::format("{}: weight_map {}: expected the key in {}, found none there",
                                  Printable(index_path), Quote(key), Quote(file)));
    }
  }
  return tensors;
}

Result<std::vector<TensorLocation>> LocateAll(const std::string& directory) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") files.push_back(it->path().filename().string());
  }
  if (error) {
    return BadInput(fmt::format("{}: cannot be listed: {}", Printable(directory), error.message()));
  }
  if (files.empty()) {
    return BadInput(
        fmt::format("{}: expected safetensors files, found none", Printable(directory)));
  }
  std::sort(files.begin(), files.end());
  std::vector<TensorLocation> tensors;
  for (const std::string& file : files) SP_TRY(Append(directory, file, tensors));
  return tensors;
}

/// A dangling link counts as there: it is reported, not passed over.
bool Holds(const std::string& directory, const char* name) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(directory + "/" + name, ignored));
}

Result<std::vector<TensorLocation>> LocateUnsorted(const std::string& checkpoint) {
  std::error_code error;
  if (!fs::is_directory(checkpoint, error)) {
    SP_ASSIGN(const auto input, InputFile::Open(checkpoint));
    return ReadHeader(*input, fs::path(checkpoint).filename().string());
  }
  if (Holds(checkpoint, kSingleName)) {
    std::vector<TensorLocation> tensors;
    SP_TRY(Append(checkpoint, kSingleName, tensors));
    return tensors;
  }
  return Holds(checkpoint, kIndexName) ? LocateIndexed(checkpoint) : LocateAll(checkpoint);
}

/// The layer that a key of an adapter's file is a copy of, "lm_head.weight": PEFT writes and reads one
/// where the output layer has an adapter. Empty if it is none.
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
                                           std::vector<TensorLocation> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorLocation& a, const TensorLocation& b) {
    return std::tie(a.name, a.file) < std::tie(b.name, b.file);
  });
  const auto twice = std::adjacent_find(
      tensors.begin(), tensors.end(),
      [](const TensorLocation& a, const TensorLocation& b) { return a.name == b.name; });
  if (twice != tensors.end()) {
    return BadInput(fmt::format("{}: expected key {} in one file, found it in {} and {}",
                                Printable(checkpoint), Quote(twice->name), Quote(twice->file),
                                Quote((twice + 1)->file)));
  }
  return tensors;
}

}  // namespace

Result<std::vector<TensorLocation>> Locate(const std::string& checkpoint) {
  SP_ASSIGN(std::vector<TensorLocation> tensors, LocateUnsorted(checkpoint));
  return Sorted(checkpoint, std::move(tensors));
}

Result<std::vector<TensorLocation>> LocateSource(const Case& test_case, const std::string& source) {
  std::vector<TensorLocation> tensors;
  if (!test_case.model.from_scratch) {
    std::error_code error;
    const bool named = Holds(source, kSingleName) || Holds(source, kIndexName);
    if (fs::is_directory(source, error) && !named) {
      return BadInput(fmt::format("{}: expected {} or {}, found neither", Printable(source), kSingleName,
                                  kIndexName));
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
      if (layer.empty() || !keys.contains("base_model.model." + module + ".lora_A.weight")) continue;
      tensor.name = layer;
      std::erase_if(tensors, [&](const TensorLocation& base) { return base.name == layer; });
    }
    std::move(found.begin(), found.end(), std::back_inserter(tensors));
  }
  return Sorted(source, std::move(tensors));
}

Result<std::vector<TensorLocation>> LocateSaved(const Case& test_case, const std::string& saved) {
  SP_ASSIGN(std::vector<TensorLocation> tensors, LocateUnsorted(saved));
  if (test_case.model.lora || !test_case.model.adapter.empty()) {
    SP_TRY(Append(saved, std::string("adapter/") + kAdapterName, tensors));
  }
  return Sorted(saved, std::move(tensors));
}

std::optional<uint64_t> ClaimedSize(const std::string& checkpoint, bool& indexed) {
  std::error_code error;
  indexed = fs::is_directory(checkpoint, error) && !Holds(checkpoint, kSingleName) &&
            Holds(checkpoint, kIndexName);
  if (!indexed) return std::nullopt;
  const auto text = ReadWholeFile(checkpoint + "/" + kIndexName, kIndexBytesMax);
  simdjson::dom::parser parser;
  uint64_t bytes = 0;
  if (!text.ok() || parser.parse(text.value())["metadata"]["total_size"].get(bytes)) return std::nullopt;
  return bytes;
}

std::string PathOf(const std::string& checkpoint, const TensorLocation& where) {
  if (where.file.starts_with('/')) return where.file;
  std::error_code error;
  return fs::is_directory(checkpoint, error) ? checkpoint + "/" + where.file : checkpoint;
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
