// Which tensor goes where in which file.
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "src/checkpoint/save.h"
#include "src/core/dtype.h"

namespace shardproof {
namespace {

uint64_t GlobalBytes(const Slot& slot) {
  uint64_t bytes = c10::elementSize(slot.spec.dtype);
  for (const int64_t size : slot.spec.shape) bytes *= size;
  return bytes;
}

/// Fills in header, offsets and size once a file's tensors are known.
void LayOut(SavedFile& file) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  uint64_t data = 0;
  for (SavedTensor& tensor : file.tensors) {
    const uint64_t bytes = GlobalBytes(*tensor.slot);
    header[tensor.slot->spec.name] = {{"dtype", DtypeName(tensor.slot->spec.dtype)},
                                      {"shape", tensor.slot->spec.shape},
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

}  // namespace

std::vector<SavedFile> PlanFiles(const Model& model, uint64_t max_file_bytes, int64_t world_size) {
  std::vector<std::shared_ptr<Slot>> slots;
  uint64_t total = 0;
  for (const auto& slot : model.Slots()) {
    if (!slot->spec.persistent) continue;
    slots.push_back(slot);
    total += GlobalBytes(*slot);
  }
  const uint64_t limit = max_file_bytes > 0 ? max_file_bytes : (total + world_size - 1) / world_size;
  std::vector<SavedFile> files(1);
  uint64_t filled = 0;
  for (const auto& slot : slots) {
    const uint64_t bytes = GlobalBytes(*slot);
    if (!files.back().tensors.empty() && filled + bytes > limit) {
      files.emplace_back();
      filled = 0;
    }
    files.back().tensors.push_back({slot, 0});
    filled += bytes;
  }
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    LayOut(files[i]);
  }
  return files;
}

}  // namespace shardproof
