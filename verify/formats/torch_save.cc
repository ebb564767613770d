// Files of torch.save: nested dicts and lists, whose tensors and values get the keys that lead to
// them as their names.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "verify/formats/file_names.h"
#include "verify/formats/flatten.h"
#include "verify/formats/stored.h"
#include "verify/formats/torch_index.h"
#include "verify/oracle/header.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWholeModel = "pytorch_model.bin";
constexpr std::array kKinds = {".pt", ".pth", ".bin", ".ckpt"};
constexpr int kFolderDepthMax = 2;  // a folder for every rank, in a folder for the step

/// \param is_one_of_many  of a directory: then a file that cannot be read is damage.
Status AddFile(const std::string& name, const std::string& path, bool is_one_of_many,
               Damage* damage, StoredCheckpoint& checkpoint) {
  SP_ASSIGN(const auto file, oracle::InputFile::Open(path));
  const auto index = static_cast<uint32_t>(checkpoint.files.size());
  checkpoint.files.push_back({name, path, file->size()});
  bool is_rotten = false;
  const auto opened = TorchArchive::Open(file, 0, file->size(), &is_rotten);
  if (!opened.ok()) {
    // What begins as an archive, or is empty, is one that is damaged; what else there may be in a
    // directory, under such a name, is not known.
    char magic[2] = {};
    SP_TRY(file->ReadAt(0, std::min<uint64_t>(file->size(), sizeof magic), magic));
    const bool is_archive = file->size() == 0 || std::string_view(magic, 2) == "PK";
    const bool is_known = opened.error().code != ErrorCode::kUnsupported;
    if (is_known && (is_rotten || (is_archive && is_one_of_many)))
      return oracle::Note(opened.error(), damage);
    checkpoint.files.pop_back();
    return is_archive ? opened.error()
                      : Unsupported(fmt::format("{}: expected a ZIP archive of torch.save, found a "
                                                "file of a kind that is not known",
                                                oracle::Printable(path)));
  }
  const TorchArchive& archive = opened.value();
  checkpoint.archives.push_back({"", index, archive.entries()});
  return Flatten(archive, "", index, path, checkpoint);
}

/// The files below the directory that torch.save may have written, sorted. \param damage  takes
/// links to folders of ranks that lead to nothing. \error kBadInput if a folder of it cannot be
/// listed; `names` has the others' files.
Status ListFiles(const std::string& directory, std::vector<std::string>& names, Damage* damage) {
  Status lost = Ok();
  const Status walked = oracle::Walk(directory, [&](const oracle::DirectoryEntry& entry) {
    if (IsFolderOfRank(entry.name) && !oracle::Exists(entry.path) && lost.ok()) {
      lost = oracle::Note(BadInput(fmt::format("{}: expected the folder of a rank, found a link to "
                                               "nothing",
                                               oracle::Printable(entry.path))),
                          damage);
    }
    if (!entry.is_directory && IsNamedAsTorchSave(fs::path(entry.name).filename().string()))
      names.push_back(entry.name);
    if (entry.depth >= kFolderDepthMax) return oracle::Next::kOver;
    // Other links may lead to what is no part of it, or back to it.
    return IsFolderOfRank(entry.name) ? oracle::Next::kIntoLinkToo : oracle::Next::kInto;
  });
  std::sort(names.begin(), names.end());
  return walked.ok() ? lost : walked;
}

/// Hugging Face's names go first: what else is in such a directory is no part of the model.
Result<std::vector<std::string>> FilesOfCheckpoint(const std::string& directory, Damage* damage) {
  if (oracle::Exists(directory + "/" + kWholeModel)) return std::vector<std::string>{kWholeModel};
  const std::string index = directory + "/" + kTorchIndexName;
  if (!oracle::Exists(index)) {
    std::vector<std::string> names;
    SP_TRY(ListFiles(directory, names, damage));
    return names;
  }
  SP_ASSIGN(const auto files, oracle::ReadIndex(index));
  std::set<std::string> names;
  for (const auto& [key, file] : files) names.insert(file);
  return std::vector<std::string>(names.begin(), names.end());
}

/// Files of ranks have one and the same names: there the file's name goes before each, or where
/// the files have shards that are put together, before those that several have.
void NameByFile(StoredCheckpoint& checkpoint, bool is_of_shards,
                const std::vector<uint32_t>& file_of_tensor,
                const std::vector<uint32_t>& file_of_value) {
  std::set<std::string> twice;
  const auto count = [&](const auto& list) {
    std::set<std::string_view> names;
    for (const auto& entry : list) {
      if (!names.insert(entry.name).second) twice.insert(entry.name);
    }
  };
  count(checkpoint.tensors);
  count(checkpoint.values);
  if (twice.empty()) return;
  const auto name = [&](auto& list, const std::vector<uint32_t>& files) {
    for (size_t i = 0; i < list.size(); ++i) {
      if (is_of_shards && !twice.contains(list[i].name)) continue;
      const fs::path file = checkpoint.files[files[i]].name;
      list[i].name = (file.parent_path() / file.stem()).string() + "/" + list[i].name;
    }
  };
  name(checkpoint.tensors, file_of_tensor);
  name(checkpoint.values, file_of_value);
}

/// Into how many parts DeepSpeed's ZeRO has cut its state, by what it keeps there for each group of
/// parameters: "2" or "[2, 2]". \pre no file's name goes before the names.
std::optional<int64_t> PartitionsOf(const StoredCheckpoint& checkpoint) {
  std::optional<int64_t> most;
  for (const StoredValue& value : checkpoint.values) {
    if (value.name != "optimizer_state_dict.partition_count") continue;
    const char* end = value.text.data() + value.text.size();
    for (const char* at = value.text.data(); at < end;) {
      int64_t count = 0;
      const auto [rest, error] = std::from_chars(at, end, count);
      at = error == std::errc() ? rest : at + 1;
      if (error == std::errc() && count > most.value_or(0)) most = count;
    }
  }
  return most;
}

Result<StoredCheckpoint> OpenDirectory(const std::string& directory, Damage* damage) {
  SP_ASSIGN(const std::vector<std::string> names, FilesOfCheckpoint(directory, damage));
  StoredCheckpoint checkpoint{.format = "torch.save"};
  std::vector<uint32_t> file_of_tensor, file_of_value;
  std::vector<Error> unknown;
  for (const std::string& name : names) {
    const std::string path = directory + "/" + name;
    const bool is_there = oracle::Exists(path);
    const size_t files = checkpoint.files.size();
    if (const Status added = AddFile(name, path, true, damage, checkpoint); !added.ok()) {
      const bool is_unknown = damage != nullptr && checkpoint.files.size() == files &&
                              added.error().code == ErrorCode::kUnsupported;
      if (is_unknown) {
        unknown.push_back(added.error());
        continue;
      }
      if (is_there) return added.error();
      SP_TRY(oracle::Note(
          added.error().While(oracle::Printable(directory) + "/" + kTorchIndexName + " names it"),
          damage));
      continue;
    }
    const auto file = static_cast<uint32_t>(checkpoint.files.size() - 1);
    file_of_tensor.resize(checkpoint.tensors.size(), file);
    file_of_value.resize(checkpoint.values.size(), file);
  }
  if (checkpoint.files.empty() && !unknown.empty()) return unknown.front();
  for (Error& error : unknown) checkpoint.unjudged.push_back(std::move(error.message));
  SP_TRY(CheckTorchIndexes(directory, checkpoint, file_of_tensor, damage));
  SP_TRY(CheckComplete(directory, names, oracle::Exists(directory + "/" + kTorchIndexName), damage,
                       PartitionsOf(checkpoint)));
  std::map<std::string, std::vector<int64_t>> shapes;  // of what universal checkpoints have a file
  for (size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    const StoredTensor& tensor = checkpoint.tensors[i];
    if (tensor.name == "param") shapes[checkpoint.files[file_of_tensor[i]].name] = tensor.shape;
  }
  SP_TRY(CheckUniversal(directory, shapes, names, damage));
  const bool is_of_shards = !checkpoint.shards.empty();
  NameByFile(checkpoint, is_of_shards, file_of_tensor, file_of_value);
  SP_TRY(PutShardsTogether(directory, checkpoint, damage));
  SP_TRY(SortByName(directory, checkpoint));
  return checkpoint;
}

}  // namespace

bool IsNamedAsTorchSave(const std::string& name) {
  const auto ends = [&](const char* kind) { return name.ends_with(kind); };
  return !name.starts_with('.') && std::any_of(kKinds.begin(), kKinds.end(), ends);
}

bool HoldsTorchSave(const std::string& directory) {
  if (oracle::Exists(directory + "/" + kTorchIndexName)) return true;
  std::vector<std::string> names;
  (void)ListFiles(directory, names, nullptr);  // what cannot be listed is told when it is opened
  return !names.empty();
}

Result<StoredCheckpoint> OpenTorchSave(const std::string& path, Damage* damage) {
  if (oracle::IsDirectory(path)) return OpenDirectory(path, damage);
  StoredCheckpoint checkpoint{.format = "torch.save"};
  SP_TRY(AddFile(fs::path(path).filename().string(), path, false, damage, checkpoint));
  SP_TRY(PutShardsTogether(path, checkpoint, damage));
  SP_TRY(SortByName(path, checkpoint));
  return checkpoint;
}

}  // namespace shardproof::formats
