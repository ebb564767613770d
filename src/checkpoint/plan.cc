// Which tensor goes where in which file.
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "src/aten/dtype.h"
#include "src/checkpoint/save.h"
#include "src/format/file_names.h"
#include "src/model/lora.h"

namespace shardproof {
namespace {

/// Fills in header, offsets and size once a file's tensors are known.
void LayOut(SavedFile& file) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t data = 0;
  for (SavedTensor& tensor : file.tensors) {
    const uint64_t bytes = tensor.state.bytes();
    header[tensor.key] = {{"dtype", DtypeName(tensor.state.slot->spec.dtype)},
                          {"shape", tensor.state.shape()},
                          {"data_offsets", {data, data + bytes}}};
    tensor.offset = data;
    data += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  file.header.resize(8);
  std::memcpy(file.header.data(), &length, 8);
  file.header += text;
  for (SavedTensor& tensor : file.tensors) tensor.offset += file.header.size();
  file.size = file.header.size() + data;
}

/// Files of about `limit` data bytes, "<stem>-00001-of-00004.safetensors"; one at least.
void AddFiles(std::vector<SavedTensor> tensors, uint64_t max_file_bytes, int64_t world_size,
              const std::string& folder, const std::string& stem, std::vector<SavedFile>& planned) {
  uint64_t total = 0;
  for (const SavedTensor& tensor : tensors) total += tensor.state.bytes();
  const uint64_t limit =
      max_file_bytes > 0 ? max_file_bytes : (total + world_size - 1) / world_size;
  std::vector<SavedFile> files(1);
  uint64_t filled = 0;
  for (SavedTensor& tensor : tensors) {
    const uint64_t bytes = tensor.state.bytes();
    if (!files.back().tensors.empty() && filled + bytes > limit) {
      files.emplace_back();
      filled = 0;
    }
    filled += bytes;
    files.back().tensors.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].folder = folder;
    files[i].name = fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i + 1, files.size());
    planned.push_back(std::move(files[i]));
  }
}

}  // namespace

std::vector<SavedFile> PlanFiles(const StateDict& state, uint64_t max_file_bytes,
                                 int64_t world_size) {
  std::vector<SavedTensor> of_model, of_training;
  SavedFile adapter{.folder = kAdapterFolder, .name = kAdapterFileName};
  for (const StateTensor& tensor : state.tensors) {
    const StatePath& path = tensor.paths[0];
    if (NameAt(path, 0) == "model") {
      auto& list = tensor.slot->spec.adapter ? adapter.tensors : of_model;
      list.push_back({NameAt(path, 1), tensor});
      continue;
    }
    // A counter stands under the name of each part: a file has no second name for one place.
    for (const StatePath& name : tensor.paths) of_training.push_back({FlatKey(name), tensor});
  }
  std::vector<SavedFile> files;
  AddFiles(std::move(of_model), max_file_bytes, world_size, "", "model", files);
  if (!of_training.empty()) {
    AddFiles(std::move(of_training), max_file_bytes, world_size, kTrainingFolder, "state", files);
  }
  if (!adapter.tensors.empty()) files.push_back(std::move(adapter));
  for (SavedFile& file : files) LayOut(file);
  return files;
}

}  // namespace shardproof
