#include "verify/formats/torch_index.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "verify/oracle/header.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

using oracle::Printable;
using oracle::Quote;
using Index = std::map<std::string, std::string>;  // key to file

/// The keys of tensors by their file in a folder ("" or "model/"); of a file that could not be read
/// there is none.
std::map<std::string, std::set<std::string>> KeysByFile(
    const std::string& folder, const StoredCheckpoint& checkpoint,
    const std::vector<uint32_t>& file_of_tensor) {
  std::map<std::string, std::set<std::string>> keys;
  for (size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    const std::string& file = checkpoint.files[file_of_tensor[i]].name;
    const bool is_in_it =
        file.starts_with(folder) && file.find('/', folder.size()) == std::string::npos;
    if (is_in_it) keys[file.substr(folder.size())].insert(checkpoint.tensors[i].name);
  }
  return keys;
}

Status CheckKeys(const std::string& path, const Index& index,
                 const std::map<std::string, std::set<std::string>>& held, Damage* damage) {
  for (const auto& [file, keys] : held) {
    for (const std::string& key : keys) {
      const auto listed = index.find(key);
      if (listed != index.end() && listed->second == file) continue;
      SP_TRY(oracle::Note(
          BadInput(fmt::format(
              "{}: {} holds key {}: expected weight_map to say so, found {}", Printable(path),
              Quote(file), Quote(key),
              listed == index.end() ? "no entry" : "the file " + Quote(listed->second))),
          damage));
    }
  }
  for (const auto& [key, file] : index) {
    const auto keys = held.find(file);
    if (keys == held.end() || keys->second.contains(key)) continue;
    SP_TRY(oracle::Note(
        BadInput(fmt::format("{}: weight_map {}: expected the key in {}, found none there",
                             Printable(path), Quote(key), Quote(file))),
        damage));
  }
  return Ok();
}

/// \param directory  with a slash behind it.
Status CheckFiles(const std::string& directory, const std::string& path, const Index& index,
                  Damage* damage) {
  std::set<std::string> files;
  for (const auto& [key, file] : index) files.insert(file);
  for (const std::string& file : files) {
    if (oracle::Exists(directory + file)) continue;
    SP_TRY(oracle::Note(BadInput(fmt::format("{}: expected the file {}, which it names, found none",
                                             Printable(path), Quote(file))),
                        damage));
  }
  return Ok();
}

}  // namespace

Status CheckTorchIndexes(const std::string& directory, const StoredCheckpoint& checkpoint,
                         const std::vector<uint32_t>& file_of_tensor, Damage* damage) {
  std::set<std::string> folders = {""};
  for (const StoredFile& file : checkpoint.files)
    folders.insert(file.name.substr(0, file.name.rfind('/') + 1));
  std::set<std::string> names;
  for (const std::string& folder : folders) {
    (void)oracle::List(folder.empty() ? directory : directory + "/" + folder,
                       [&](const oracle::DirectoryEntry& entry) {
                         if (entry.name.ends_with(".bin.index.json"))
                           names.insert(folder + entry.name);
                       });
  }
  for (const std::string& name : names) {
    const std::string path = directory + "/" + name;
    const std::string folder = name.substr(0, name.rfind('/') + 1);
    const auto index = oracle::ReadIndex(path);
    if (!index.ok()) {
      SP_TRY(oracle::Note(index.error(), damage));
      continue;
    }
    SP_TRY(
        name == folder + kTorchIndexName
            ? CheckKeys(path, index.value(), KeysByFile(folder, checkpoint, file_of_tensor), damage)
            : CheckFiles(directory + "/" + folder, path, index.value(), damage));
  }
  return Ok();
}

}  // namespace shardproof::formats
