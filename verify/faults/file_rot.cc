// Bit rot in what was saved: one bit of a tensor is other than what was written.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "verify/fault/fault.h"
#include "verify/fault/fault_descriptions.h"
#include "verify/faults/decorators.h"
#include "verify/formats/stored.h"

namespace shardproof::faults::file_rot {
namespace {

namespace fs = std::filesystem;

/// The newest checkpoint that was saved: what "latest" names, or the directory itself.
std::string NewestOf(const std::string& save_to) {
  std::ifstream file(save_to + "/latest");
  std::string name;
  if (!std::getline(file, name)) return save_to;
  return save_to + "/" + name;
}

/// A byte of a tensor in a file.
struct Target {
  std::string path;
  FaultRecord record;  ///< of its damage
};

/// Every tensor that has the byte among its own: several where they are tied.
std::vector<std::string> NamesAt(const formats::StoredCheckpoint& stored, uint32_t file,
                                 uint64_t offset) {
  std::vector<std::string> names;
  for (const formats::StoredTensor& tensor : stored.tensors) {
    const uint64_t width = tensor.Elements() == 0 ? 0 : tensor.Bytes() / tensor.Elements();
    for (const formats::Chunk& chunk : tensor.chunks) {
      const uint64_t end = chunk.file_offset + chunk.Elements() * width;
      if (chunk.file != file || offset < chunk.file_offset || offset >= end) continue;
      names.push_back(tensor.name);
      break;
    }
  }
  return names;
}

/// The n-th byte of all the tensors of the checkpoint in `directory`, by their names, from the
/// first on again where there are no more. Read by the verifier's own readers.
std::optional<Target> TargetIn(const std::string& directory, uint64_t n) {
  const auto opened = formats::OpenStored(directory);
  if (!opened.ok()) return std::nullopt;
  uint64_t total = 0;
  for (const formats::StoredTensor& tensor : opened.value().tensors) total += tensor.Bytes();
  if (total == 0) return std::nullopt;
  uint64_t left = n % total;
  for (const formats::StoredTensor& tensor : opened.value().tensors) {
    const uint64_t width = tensor.Elements() == 0 ? 0 : tensor.Bytes() / tensor.Elements();
    for (const formats::Chunk& chunk : tensor.chunks) {
      const uint64_t bytes = chunk.Elements() * width;
      if (left >= bytes) {
        left -= bytes;
        continue;
      }
      const formats::StoredFile& file = opened.value().files[chunk.file];
      const uint64_t offset = chunk.file_offset + left;
      const std::vector<std::string> names = NamesAt(opened.value(), chunk.file, offset);
      return Target{file.path,
                    {.detail = fmt::format("bit 0 of byte {} of {}, of tensor '{}'", offset,
                                           file.name, fmt::join(names, "' and '")),
                     .file = file.name,
                     .byte = offset,
                     .tensors = names}};
    }
  }
  return std::nullopt;
}

/// Shows the byte changed each time that the file is mapped; what is on disk stays as it is.
class RottenFiles : public FilesDecorator {
 public:
  RottenFiles(std::shared_ptr<FileSystem> inner, std::string save_to, uint64_t n, FaultLog log)
      : FilesDecorator(std::move(inner)),
        save_to_(std::move(save_to)),
        n_(n),
        log_(std::move(log)) {}

  Result<std::shared_ptr<const MappedFile>> Map(const std::string& path) override {
    if (!path.starts_with(save_to_ + "/")) return inner_->Map(path);
    const std::string directory = NewestOf(save_to_);
    if (!path.starts_with(directory + "/")) return inner_->Map(path);
    const auto target = TargetIn(directory, n_);
    std::error_code error;
    if (!target || !fs::equivalent(target->path, path, error)) return inner_->Map(path);
    const auto patch = [&](std::byte* data) {
      log_(target->record);
      *data ^= std::byte{1};
    };
    return PatchedFiles(inner_, path, *target->record.byte, patch).Map(path);
  }

 private:
  const std::string save_to_;
  const uint64_t n_;
  const FaultLog log_;
};

Result<int64_t> ByteOf(const std::string& where) {
  return ParseIndex(where, int64_t{1} << 48, "the byte's number");
}

const FaultRegistration kRegistration{{
    .id = "file/rot",
    .what =
        "the lowest bit of one byte of the newest saved checkpoint is flipped when it is restored",
    .where =
        "N: the N-th byte of all its tensors in the order of their names, wrapping around: 0, 1000",
    .example = {"1000",
                "of the newest saved checkpoint, the lowest bit of the 1001st byte of all its "
                "tensors is flipped when it is restored"},
    .model = FaultModel::kMustRecover,
    .check = [](const Case&, const std::vector<oracle::TensorLocation>&,
                const std::string& where) -> Status {
      SP_TRY(ByteOf(where));
      return Ok();
    },
    .arm =
        [](FaultSite site, const std::string& where) {
          site.world.files =
              std::make_shared<RottenFiles>(site.world.files, site.save_to,
                                            static_cast<uint64_t>(ByteOf(where).value()), site.log);
        },
    .in_words = [](const Case&, const std::string& where) -> std::string {
      const auto byte = ByteOf(where);
      if (!byte.ok()) return "";
      return fmt::format(
          "of the newest saved checkpoint, the lowest bit of the {} byte of all its tensors is "
          "flipped when it is restored",
          Ordinal(byte.value() + 1));
    },
    .tried_at = {"0", "61"},
}};

}  // namespace
}  // namespace shardproof::faults::file_rot
