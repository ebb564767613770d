#include "verify/formats/beside.h"

#include <algorithm>
#include <set>

#include "verify/formats/archive.h"
#include "verify/formats/composite.h"
#include "verify/oracle/header.h"
#include "verify/oracle/listing.h"

namespace shardproof::formats {
namespace {

constexpr uint64_t kPointerBytesMax = 4096;

/// Accelerate calls files of torch.save .pkl where they hold no weights: random_states_0.pkl.
bool IsNamedAsOne(const std::string& name) {
  return IsNamedAsWeights(name) || name.ends_with(".distcp") || name.ends_with(".pkl") ||
         IsNamedAsArchive(name);
}

/// The folder that DeepSpeed has put a step's state into, within the Trainer's own of that step.
std::string LatestIn(const std::string& directory) {
  const auto text = oracle::ReadWholeFile(directory + "/latest", kPointerBytesMax);
  return text.ok() ? text.value().substr(0, text.value().find_last_not_of(" \r\n") + 1) : "";
}

}  // namespace

Beside BesideOf(const std::string& path, const std::vector<StoredFile>& read) {
  std::set<std::string> files, folders;  // that are read, and that something read lies in
  for (const StoredFile& file : read) {
    files.insert(file.name);
    for (size_t slash = file.name.find('/'); slash != std::string::npos;
         slash = file.name.find('/', slash + 1))
      folders.insert(file.name.substr(0, slash));
  }
  Beside beside;
  const std::string latest = LatestIn(path);
  const auto look = [&](const std::string& within, const std::string& before) {
    (void)oracle::List(within, [&](const oracle::DirectoryEntry& entry) {
      const std::string name = before + entry.name;
      if (!entry.is_directory) {
        if (IsNamedAsOne(entry.name) && !files.contains(name)) beside.files.push_back(name);
        return;
      }
      const bool is_none =
          entry.name.starts_with('.') || folders.contains(name) || !LooksLikeCheckpoint(entry.path);
      if (is_none) return;
      const bool is_other = entry.is_link || (MayBeStepName(entry.name) && name != latest);
      (is_other ? beside.others : beside.folders).push_back(name);
    });
  };
  look(path, "");
  for (const std::string& folder : folders) look(path + "/" + folder, folder + "/");
  for (auto* list : {&beside.files, &beside.folders, &beside.others})
    std::sort(list->begin(), list->end());
  return beside;
}

}  // namespace shardproof::formats
