#include "verify/formats/composite.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "verify/oracle/header.h"
#include "verify/oracle/json.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

namespace fs = std::filesystem;
using oracle::Next;

constexpr int kPartDepthMax = 1;
constexpr size_t kWalkedMax = 100'000;
constexpr const char* kPipeline = "model_index.json";  // of Diffusers
constexpr uint64_t kJsonBytesMax = 1u << 20;

/// Adds what a part has, under its folder's name.
void AddPart(const std::string& folder, StoredCheckpoint part, StoredCheckpoint& whole) {
  const auto first_file = static_cast<uint32_t>(whole.files.size());
  const std::string before = folder + "/";
  const auto move_chunks = [&](std::vector<Chunk>& chunks) {
    for (Chunk& chunk : chunks) chunk.file += first_file;
  };
  for (StoredTensor& tensor : part.tensors) {
    tensor.name = before + tensor.name;
    move_chunks(tensor.chunks);
    for (auto& replica : tensor.replicas) move_chunks(replica);
    whole.tensors.push_back(std::move(tensor));
  }
  for (StoredValue& value : part.values) whole.values.push_back({before + value.name, value.text});
  for (StoredFile& file : part.files) {
    file.name = before + file.name;
    whole.files.push_back(std::move(file));
  }
  for (StoredArchive& archive : part.archives) {
    archive.file += first_file;
    whole.archives.push_back(std::move(archive));
  }
  for (const auto& [name, count] : part.opaque) whole.opaque[name] += count;
  std::move(part.unjudged.begin(), part.unjudged.end(), std::back_inserter(whole.unjudged));
}

/// The number behind the last match of these words; empty if there is none.
std::string NumberBehind(const std::regex& words, const std::string& name) {
  std::string digits;
  for (std::sregex_iterator it(name.begin(), name.end(), words), end; it != end; ++it)
    digits = (*it)[1];
  return digits;
}

const std::regex& StepWords() {
  static const std::regex kWords(
      "(?:steps?|iter(?:ation)?|checkpoint|ckpt|global_step)[-_=.]?([0-9]+)", std::regex::icase);
  return kWords;
}

}  // namespace

std::string NamedStep(const std::string& name) {
  static const std::regex kOthers(
      "(?:^|[^A-Za-z0-9])(?:it|ba|batch|update|round|epochs?|ep|e[0-9]+s)[-_=.]?([0-9]+)"
      "(?![A-Za-z0-9])",
      std::regex::icase);
  const std::string digits = NumberBehind(StepWords(), name);
  return digits.empty() ? NumberBehind(kOthers, name) : digits;
}

bool IsStepName(const std::string& name) {
  return !NumberBehind(StepWords(), name).empty() ||
         name.find_first_not_of("0123456789") == std::string::npos;
}

bool MayBeStepName(const std::string& name) {
  return !NamedStep(name).empty() || name.find_first_not_of("0123456789") == std::string::npos;
}

std::vector<std::string> PartsOf(const std::string& directory) {
  std::vector<std::string> parts;
  for (const char* whole : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (oracle::Exists(directory + "/" + whole)) return parts;  // what else is there is no part
  }
  size_t count = 0;
  bool is_none = false;
  const Status walked = oracle::Walk(directory, [&](const oracle::DirectoryEntry& entry) {
    is_none = ++count > kWalkedMax;
    if (is_none) return Next::kEnd;
    if (!entry.is_directory || entry.is_link) return Next::kOver;
    is_none = MayBeStepName(fs::path(entry.name).filename().string());
    if (is_none) return Next::kEnd;
    if (HoldsDcpOrSafetensors(entry.path)) {
      parts.push_back(entry.name);
      return Next::kOver;
    }
    return entry.depth < kPartDepthMax ? Next::kInto : Next::kOver;
  });
  if (is_none || !walked.ok()) return {};
  std::sort(parts.begin(), parts.end());
  return parts;
}

namespace {

/// Folders that belong to a model which lies beside them: those that modules.json of
/// sentence-transformers names, and PEFT's further adapters beside the first.
std::set<std::string> NamedParts(const std::string& directory) {
  std::set<std::string> named;
  simdjson::dom::parser parser;
  const auto modules = oracle::FindJson(parser, directory + "/modules.json", kJsonBytesMax);
  simdjson::dom::array list;
  if (modules && !modules->get(list)) {
    for (const oracle::JsonElement module : list) {
      std::string_view path;
      const bool is_inside = !module["path"].get(path) && oracle::StaysInside(path);
      if (is_inside) named.emplace(path);
    }
  }
  const auto is_adapter = [](const std::string& folder) {
    return oracle::IsFile(folder + "/adapter_config.json");
  };
  if (!is_adapter(directory)) return named;
  (void)oracle::List(directory, [&](const oracle::DirectoryEntry& entry) {
    if (entry.is_directory && !entry.is_link && is_adapter(entry.path)) named.insert(entry.name);
  });
  return named;
}

/// Whether a folder has a model's config and nothing that could be its weights.
bool IsWithoutWeights(const std::string& folder) {
  bool has_config = false, has_more = false;
  (void)oracle::List(folder, [&](const oracle::DirectoryEntry& entry) {
    const std::string& name = entry.name;
    has_config |= name == "config.json";
    has_more |= !name.ends_with(".json") && !name.ends_with(".txt") && !name.ends_with(".md");
  });
  return has_config && !has_more;
}

}  // namespace

Status AddNamedParts(const std::string& directory, StoredCheckpoint& checkpoint, Damage* damage) {
  for (const std::string& folder : NamedParts(directory)) {
    const std::string path = directory + "/" + folder;
    if (!oracle::IsDirectory(path) || !LooksLikeCheckpoint(path)) continue;
    auto part = OpenStored(path, damage);
    if (part.ok()) {
      AddPart(folder, std::move(part).value(), checkpoint);
    } else {
      SP_TRY(oracle::Note(part.error(), damage));
    }
  }
  return SortByName(directory, checkpoint);
}

bool IsPipeline(const std::string& directory) {
  return oracle::IsFile(directory + "/" + kPipeline);
}

Status CheckPipeline(const std::string& directory, Damage* damage) {
  const std::string path = directory + "/" + kPipeline;
  simdjson::dom::parser parser;
  const auto root = oracle::FindJson(parser, path, kJsonBytesMax);
  simdjson::dom::object components;
  if (!root || root->get(components)) return Ok();
  for (const auto& [key, value] : components) {
    simdjson::dom::array pair;  // of a library and a class; both are null where there is none
    std::string_view kind;
    if (value.get(pair) || pair.size() != 2 || pair.at(1).get(kind)) continue;
    const std::string name(key), folder = directory + "/" + name;
    const bool is_there = oracle::IsDirectory(folder);
    if (is_there && !IsWithoutWeights(folder)) continue;
    SP_TRY(oracle::Note(
        BadInput(fmt::format("{}: expected {} of the component {}, found {}",
                             oracle::Printable(path), is_there ? "weights" : "the folder",
                             oracle::Quote(name), is_there ? "none in its folder" : "none")),
        damage));
  }
  return Ok();
}

Result<StoredCheckpoint> OpenComposite(const std::string& directory,
                                       const std::vector<std::string>& parts, Damage* damage) {
  StoredCheckpoint whole;
  if (HoldsTorchSave(directory)) {
    SP_ASSIGN(whole, OpenTorchSave(directory, damage));
  }
  std::set<std::string> formats;
  for (const std::string& folder : parts) {
    auto part = OpenStored(directory + "/" + folder, damage);
    if (!part.ok()) {  // the others are judged all the same
      if (part.error().code == ErrorCode::kUnsupported) return part.error();
      SP_TRY(oracle::Note(part.error(), damage));
      continue;
    }
    formats.insert(part.value().format);
    AddPart(folder, std::move(part).value(), whole);
  }
  whole.format = formats.empty()       ? "none"
                 : formats.size() == 1 ? *formats.begin()
                                       : "DCP and safetensors";
  SP_TRY(CheckPipeline(directory, damage));
  SP_TRY(SortByName(directory, whole));
  return whole;
}

}  // namespace shardproof::formats
