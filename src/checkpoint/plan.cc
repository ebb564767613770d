// Which tensor goes where in which file.
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "src/checkpoint/save.h"
#include "src/core/dtype.h"
#include "src/model/lora.h"

namespace shardproof {
namespace {

/// What a save writes of one slot.
std::vector<SavedTensor> KeysOf(const std::shared_ptr<Slot>& slot) {
  std::vector<StoredKey> keys = slot->saved_as;
  if (keys.empty()) keys.push_back({slot->spec.name, slot->spec.shape});
  std::vector<SavedTensor> saved;
  uint64_t start = 0;
  for (StoredKey& key : keys) {
    uint64_t length = c10::elementSize(slot->spec.dtype);
    for (const int64_t size : key.shape) length *= size;
    saved.push_back({std::move(key.key), std::move(key.shape), slot, start, length});
    start += length;
  }
  return saved;
}

/// Fills in header, offsets and size once a file's tensors are known.
void LayOut(SavedFile& file) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t data = 0;
  for (SavedTensor& tensor : file.tensors) {
    header[tensor.key] = {{"dtype", DtypeName(tensor.slot->spec.dtype)},
                          {"shape", tensor.shape},
                          {"data_offsets", {data, data + tensor.length}}};
    tensor.offset = data;
    data += tensor.length;
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

}  // namespace

std::vector<SavedFile> PlanFiles(const Model& model, uint64_t max_file_bytes, int64_t world_size) {
  std::vector<SavedTensor> tensors;
  SavedFile adapter{.name = fmt::format("{}/{}", kAdapterFolder, kAdapterFileName)};
  uint64_t total = 0;
  for (const auto& slot : model.Slots()) {
    if (!slot->spec.persistent) continue;
    for (SavedTensor& tensor : KeysOf(slot)) {
      if (slot->spec.adapter) {
        adapter.tensors.push_back(std::move(tensor));
        continue;
      }
      total += tensor.length;
      tensors.push_back(std::move(tensor));
    }
  }
  const uint64_t limit = max_file_bytes > 0 ? max_file_bytes : (total + world_size - 1) / world_size;
  std::vector<SavedFile> files(1);
  uint64_t filled = 0;
  for (SavedTensor& tensor : tensors) {
    if (!files.back().tensors.empty() && filled + tensor.length > limit) {
      files.emplace_back();
      filled = 0;
    }
    filled += tensor.length;
    files.back().tensors.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
  }
  if (!adapter.tensors.empty()) files.push_back(std::move(adapter));
  for (SavedFile& file : files) LayOut(file);
  return files;
}

}  // namespace shardproof
