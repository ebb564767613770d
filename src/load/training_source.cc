#include "src/load/training_source.h"

#include <fmt/format.h>

#include "src/format/file_names.h"
#include "src/format/values_file.h"
#include "src/text/quote.h"

namespace shardproof {
Status AddTrainingState(FileSystem& files, const std::string& directory, Source& source) {
  const std::string folder = directory + "/" + kTrainingFolder;
  const bool any =
      files.Exists(folder + "/" + kStateIndexName) || files.Exists(folder + "/" + kValuesName);
  if (!any) return Ok();
  SP_ASSIGN(Source state, OpenIndexed(files, folder, kStateIndexName));
  const auto first_file = static_cast<int64_t>(source.files.size());
  for (auto& [name, tensor] : state.tensors) {
    if (source.tensors.contains(name)) {
      return BadInput(
          fmt::format("{}: tensor {}: the model has one of that name", folder, text::Quote(name)));
    }
    tensor.file += first_file;
    source.state.emplace(name, std::move(tensor));
  }
  for (auto& file : state.files) source.files.push_back(std::move(file));
  for (auto& path : state.paths) source.paths.push_back(std::move(path));
  return ReadValues(files, folder + "/" + kValuesName, source.values);
}

}  // namespace shardproof
