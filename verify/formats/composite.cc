#include "verify/formats/composite.h"

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>

#include "verify/oracle/header.h"

namespace shardproof::formats {
namespace {

namespace fs = std::filesystem;

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
  std::error_code error;
  for (const char* whole : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (fs::exists(directory + "/" + whole, error)) return parts;  // what else is there is no part
  }
  size_t count = 0;
  fs::recursive_directory_iterator it(directory, error);
  for (const fs::recursive_directory_iterator end; !error && it != end; it.increment(error)) {
    if (++count > kEntriesMax) return {};
    std::error_code ignored;
    if (!it->is_directory(ignored) || it->is_symlink(ignored)) continue;
    if (it.depth() >= kPartDepthMax) it.disable_recursion_pending();
    if (IsStepName(it->path().filename().string())) return {};
    if (!HoldsDcpOrSafetensors(it->path().string())) continue;
    parts.push_back(it->path().lexically_relative(directory).string());
    it.disable_recursion_pending();
  }
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
