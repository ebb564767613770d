#include "verify/formats/composite.h"

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "verify/oracle/header.h"
#include "verify/oracle/listing.h"

namespace shardproof::formats {
namespace {

namespace fs = std::filesystem;
using oracle::Next;

constexpr int kPartDepthMax = 1;
constexpr size_t kEntriesMax = 100'000;

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

}  // namespace

std::string NamedStep(const std::string& name) {
  static const std::regex kNamed(
      "(?:steps?|iter(?:ation)?|checkpoint|ckpt|global_step)[-_=.]?([0-9]+)", std::regex::icase);
  std::string digits;
  for (std::sregex_iterator it(name.begin(), name.end(), kNamed), end; it != end; ++it)
    digits = (*it)[1];
  return digits;
}

bool IsStepName(const std::string& name) {
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
    is_none = ++count > kEntriesMax;
    if (is_none) return Next::kEnd;
    if (!entry.is_directory || entry.is_link) return Next::kOver;
    is_none = IsStepName(fs::path(entry.name).filename().string());
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
  SP_TRY(SortByName(directory, whole));
  return whole;
}

}  // namespace shardproof::formats
