// Directories and files of safetensors: with an index, of one file, or of a file for every rank.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "verify/formats/file_names.h"
#include "verify/formats/stored.h"
#include "verify/oracle/header.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

using oracle::Printable;
using oracle::Quote;

std::set<std::string> SafetensorsIn(const std::string& directory) {
  std::set<std::string> names;
  (void)oracle::List(directory, [&](const oracle::DirectoryEntry& entry) {
    if (entry.name.ends_with(".safetensors")) names.insert(entry.name);
  });
  return names;
}

/// The name of the index of a directory: that of Transformers, or where neither it nor a whole
/// model is there, of another library ("diffusion_pytorch_model.safetensors.index.json") or of a
/// variant ("model.safetensors.index.fp16.json"). Of several the shortest, which is no variant's.
std::string IndexNameIn(const std::string& directory) {
  static const std::regex kIndex(R"([^/]+\.safetensors\.index(\.[A-Za-z0-9_-]+)?\.json)");
  if (!oracle::IsDirectory(directory) || oracle::IsThere(directory + "/model.safetensors") ||
      oracle::IsThere(directory + "/" + oracle::kModelIndexName))
    return oracle::kModelIndexName;
  std::string shortest;
  (void)oracle::List(directory, [&](const oracle::DirectoryEntry& entry) {
    const bool is_one = entry.name.size() <= 255 && std::regex_match(entry.name, kIndex);
    if (!is_one) return;
    if (shortest.empty() ||
        std::pair(entry.name.size(), entry.name) < std::pair(shortest.size(), shortest))
      shortest = entry.name;
  });
  return shortest.empty() ? oracle::kModelIndexName : shortest;
}

/// A model without tensors has files that no index can name.
Status AddFilesWithoutTensors(const std::string& directory, StoredCheckpoint& checkpoint) {
  for (const std::string& name : SafetensorsIn(directory)) {
    const std::string path = directory + "/" + name;
    SP_ASSIGN(const auto input, oracle::InputFile::Open(path));
    const auto tensors = oracle::ReadHeader(*input, name);
    if (tensors.ok() && tensors.value().empty()) {
      checkpoint.files.push_back({name, path, input->size()});
    }
  }
  return Ok();
}

/// A file that the index should name: one of those whose names begin as theirs do. What begins
/// otherwise, as consolidated.safetensors, is another model's.
Status CheckNothingForgotten(const std::string& directory, const std::string& index,
                             const StoredCheckpoint& checkpoint, Damage* damage) {
  std::set<std::string> named;
  std::set<std::string> beginnings;
  bool has_variants = false;  // "model-00001-of-00002.fp16.safetensors" is of another model
  for (const StoredFile& file : checkpoint.files) {
    named.insert(file.name);
    has_variants |= std::filesystem::path(file.name).stem().has_extension();
    const size_t end = file.name.find("-0");
    if (end != std::string::npos) beginnings.insert(file.name.substr(0, end + 1));
  }
  for (const std::string& name : SafetensorsIn(directory)) {
    const bool is_of_it =
        std::any_of(beginnings.begin(), beginnings.end(),
                    [&](const std::string& beginning) { return name.starts_with(beginning); });
    const std::string path = directory + "/" + name;
    const bool is_variant = std::filesystem::path(name).stem().has_extension() && !has_variants;
    if (named.contains(name) || !is_of_it || is_variant || !oracle::Exists(path)) continue;
    SP_ASSIGN(const auto input, oracle::InputFile::Open(path));
    const auto tensors = oracle::ReadHeader(*input, name);
    if (tensors.ok() && tensors.value().empty()) continue;
    SP_TRY(oracle::Note(
        tensors.ok() ? BadInput(fmt::format(
                           "{}: expected the index to name every file of the model, found "
                           "{}, with the tensor {}, in none of its entries",
                           Printable(index), Quote(name), Quote(tensors.value().front().name)))
                     : Error(tensors.error()),
        damage));
  }
  return Ok();
}

/// The names of a file's tensors; none where it cannot be read.
std::set<std::string> NamesIn(const std::string& path) {
  std::set<std::string> names;
  const auto input = oracle::InputFile::Open(path);
  if (!input.ok()) return names;
  const auto tensors = oracle::ReadHeader(*input.value(), "");
  if (!tensors.ok()) return names;
  for (const oracle::TensorLocation& tensor : tensors.value()) names.insert(tensor.name);
  return names;
}

/// Whether the files are "model_0.safetensors", "model_1.safetensors" and so on, each with the same
/// tensors: what each rank holds, as torch-checkpointing writes it.
bool AreNumberedByRank(const std::string& directory, const std::set<std::string>& files) {
  if (files.size() < 2) return false;
  const std::string first = *files.begin();
  const size_t end = first.rfind("0.safetensors");
  const bool is_numbered = end != std::string::npos && end > 0 && first.size() <= 255 &&
                           (first[end - 1] == '_' || first[end - 1] == '-');
  if (!is_numbered) return false;
  const std::set<std::string> names = NamesIn(directory + "/" + first);
  for (size_t rank = 1; rank < files.size(); ++rank) {
    const std::string file = fmt::format("{}{}.safetensors", first.substr(0, end), rank);
    if (!files.contains(file) || NamesIn(directory + "/" + file) != names) return false;
  }
  return !names.empty();
}

/// What goes before the names of a rank's file.
std::string BeforeNames(const std::string& file) {
  const std::string rank = RankOf(file);
  return rank.empty() ? std::filesystem::path(file).stem().string() : rank;
}

/// Where files of ranks have one and the same names, the rank goes before each: "model-rank-0/w".
std::vector<std::string> RankFiles(const std::string& directory, const std::string& index) {
  if (!oracle::IsDirectory(directory) || index != oracle::kModelIndexName) return {};
  if (!oracle::IndexOf(directory, index).empty()) return {};
  const std::set<std::string> files = SafetensorsIn(directory);
  std::vector<std::string> of_ranks;
  for (const std::string& name : files) {
    if (!RankOf(name).empty()) of_ranks.push_back(name);
  }
  if (of_ranks.size() == files.size()) return of_ranks;
  if (!AreNumberedByRank(directory, files)) return {};
  return {files.begin(), files.end()};
}

Result<StoredCheckpoint> OpenRankFiles(const std::string& directory,
                                       const std::vector<std::string>& names, Damage* damage) {
  StoredCheckpoint checkpoint{.format = "safetensors"};
  for (const std::string& name : names) {
    auto opened = OpenSafetensors(directory + "/" + name, damage);
    if (!opened.ok()) {
      SP_TRY(oracle::Note(opened.error(), damage));
      continue;
    }
    const auto first_file = static_cast<uint32_t>(checkpoint.files.size());
    for (StoredTensor& tensor : opened.value().tensors) {
      tensor.name = BeforeNames(name) + "/" + tensor.name;
      for (Chunk& chunk : tensor.chunks) chunk.file += first_file;
      checkpoint.tensors.push_back(std::move(tensor));
    }
    for (StoredFile& file : opened.value().files) checkpoint.files.push_back(std::move(file));
  }
  SP_TRY(CheckComplete(directory, names, false, damage));
  SP_TRY(SortByName(directory, checkpoint));
  return checkpoint;
}

}  // namespace

Result<StoredCheckpoint> OpenSafetensors(const std::string& path, Damage* damage) {
  return OpenSafetensors(path, damage, IndexNameIn(path));
}

Result<StoredCheckpoint> OpenSafetensors(const std::string& path, Damage* damage,
                                         const std::string& index) {
  if (const auto of_ranks = RankFiles(path, index); !of_ranks.empty()) {
    return OpenRankFiles(path, of_ranks, damage);
  }
  SP_ASSIGN(std::vector<oracle::TensorLocation> found, oracle::Locate(path, damage, index));
  StoredCheckpoint checkpoint{.format = "safetensors"};
  std::map<std::string, uint32_t> files;
  for (oracle::TensorLocation& where : found) {
    const auto [file, is_new] = files.emplace(where.file, checkpoint.files.size());
    if (is_new) {
      const std::string file_path = oracle::PathOf(path, where);
      SP_ASSIGN(const auto input, oracle::InputFile::Open(file_path));
      checkpoint.files.push_back({where.file, file_path, input->size()});
    }
    Chunk whole{.offsets = std::vector<int64_t>(where.shape.size()),
                .sizes = where.shape,
                .strides = RowMajorStrides(where.shape),
                .file = file->second,
                .file_offset = where.file_offset};
    checkpoint.tensors.push_back({std::move(where.name),
                                  std::move(where.dtype),
                                  std::move(where.shape),
                                  {std::move(whole)}});
  }
  const std::string index_path = oracle::IndexOf(path, index);
  if (checkpoint.files.empty() && !index_path.empty()) {
    SP_TRY(AddFilesWithoutTensors(path, checkpoint));
  }
  if (oracle::IsDirectory(path)) {
    std::vector<std::string> names;
    for (const StoredFile& file : checkpoint.files) names.push_back(file.name);
    SP_TRY(CheckComplete(path, names, !index_path.empty(), damage));
    if (!index_path.empty()) SP_TRY(CheckNothingForgotten(path, index_path, checkpoint, damage));
    if (names.empty() && (damage == nullptr || damage->empty())) {
      SP_TRY(oracle::Note(
          BadInput(fmt::format("{}: expected an index that names files, found none in it",
                               Printable(path))),
          damage));
    }
  }
  if (!index_path.empty()) {
    checkpoint.files.push_back({index, index_path, oracle::FileBytes(index_path)});
  }
  return checkpoint;
}

}  // namespace shardproof::formats
