// A file of torch.save: nested dicts and lists, whose tensors and values get the keys that lead to
// them as their names.
#include <fmt/format.h>

#include <filesystem>

#include "verify/formats/flatten.h"
#include "verify/formats/stored.h"

namespace shardproof::formats {

Result<StoredCheckpoint> OpenTorchSave(const std::string& path) {
  SP_ASSIGN(const auto file, oracle::InputFile::Open(path));
  SP_ASSIGN(const TorchArchive archive, TorchArchive::Open(file, 0, file->size()));
  StoredCheckpoint checkpoint{.format = "torch.save"};
  checkpoint.files.push_back({std::filesystem::path(path).filename().string(), path, file->size()});
  SP_TRY(Flatten(archive, "", 0, path, checkpoint));
  SP_TRY(SortByName(path, checkpoint));
  return checkpoint;
}

}  // namespace shardproof::formats
