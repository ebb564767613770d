#include "verify/engine/saved_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "verify/audit/audit.h"
#include "verify/engine/tensors_in_checkpoint.h"
#include "verify/formats/stored.h"
#include "verify/maps/tensor_reader.h"
#include "verify/oracle/digest_scalar.h"

namespace shardproof {
namespace {

// Said once more here, since what is judged must not say where to look for it: the folder below a
// checkpoint in which the pipeline saves an adapter (src/model/lora.h).
constexpr const char* kFolderOfAdapter = "adapter";
constexpr uint64_t kPieceBytes = 1u << 20;
constexpr uint64_t kLatestBytesMax = 4096;

using formats::StoredCheckpoint;
using formats::StoredTensor;

Result<FileTensor> ReadTensor(const StoredCheckpoint& checkpoint, const WholeTensor& kept) {
  const StoredTensor& first = *kept.parts.front();
  FileTensor tensor{.name = kept.name, .dtype = first.dtype, .shape = kept.shape};
  if (!first.chunks.empty()) {
    tensor.file = checkpoint.files[first.chunks[0].file].name;
    tensor.file_offset = first.chunks[0].file_offset;
  }
  uint64_t bytes = 0;
  for (const StoredTensor* part : kept.parts) bytes += part->Bytes();
  oracle::ScalarDigest digest(bytes, *oracle::FindDtype(first.dtype));
  std::string piece, all;
  for (const StoredTensor* part : kept.parts) {
    const auto reader = maps::ReadStored(checkpoint, *part, 0);
    const uint64_t width = reader->width();
    const uint64_t step = std::max<uint64_t>(kPieceBytes / width, 1);
    for (uint64_t done = 0; done < reader->elements(); done += step) {
      const uint64_t count = std::min(step, reader->elements() - done);
      piece.resize(count * width);
      SP_TRY(reader->Read(done, count, piece.data()));
      digest.Add(piece.data(), piece.size());
      if (bytes <= kInlineBytesMax) all += piece;
    }
  }
  digest.Finish(tensor);
  if (bytes <= kInlineBytesMax) tensor.bytes.push_back({0, std::move(all)});
  return tensor;
}

Status ReadTensors(const StoredCheckpoint& checkpoint, const std::vector<TensorCase>& declared,
                   CheckpointRecord& record) {
  for (const WholeTensor& kept : TensorsKept(checkpoint, declared)) {
    SP_ASSIGN(FileTensor tensor, ReadTensor(checkpoint, kept));
    for (const StoredTensor* alike : kept.alike) {
      SP_ASSIGN(const FileTensor other,
                ReadTensor(checkpoint, {alike->name, alike->shape, {alike}}));
      if (other.digest == tensor.digest && other.dtype == tensor.dtype) continue;
      return BadInput(fmt::format("'{}' differs from '{}': parts of one tensor take the same steps",
                                  alike->name, kept.parts[0]->name));
    }
    record.tensors.emplace(kept.name, std::move(tensor));
  }
  return Ok();
}

/// Whether a checkpoint has an adapter's tensors in a folder: DCP has them among the model's.
bool HasAdapter(const std::string& directory) {
  return std::filesystem::exists(directory + "/" + kFolderOfAdapter + "/adapter_model.safetensors");
}

}  // namespace

CheckpointRecord ReadSavedState(const std::string& directory,
                                const std::vector<TensorCase>& declared) {
  CheckpointRecord record;
  const auto read = [&](const std::string& path) -> Status {
    SP_ASSIGN(const StoredCheckpoint opened, formats::OpenStored(path));
    return ReadTensors(opened, declared, record);
  };
  Status status = read(directory);
  if (status.ok() && HasAdapter(directory)) status = read(directory + "/" + kFolderOfAdapter);
  if (!status.ok()) record.error = status.error().message;
  return record;
}

namespace {

/// Takes down what an audit finds. \returns whether it could be read.
bool AddAudit(const std::string& directory, SavedStep& step) {
  auto audited = Audit(directory);
  if (!audited.ok()) {
    step.damage.push_back(audited.error().message);
    return false;
  }
  AuditResult& found = audited.value();
  step.tensors += static_cast<int64_t>(found.tensors.size());
  step.sealed = step.sealed && std::filesystem::exists(SealPath(directory));
  if (step.sealed) {
    const Status held = HoldAgainstSeal(SealPath(directory), found);
    if (!held.ok()) found.damage.push_back(held.error().message);
  }
  std::move(found.damage.begin(), found.damage.end(), std::back_inserter(step.damage));
  // torch reads an archive without them, too; what would be damaged in it then shows to nobody.
  if (found.entries_unchecked > 0) {
    step.damage.push_back(
        fmt::format("{} entries of its archives have no CRC-32", found.entries_unchecked));
  }
  for (const std::string& file : found.unread) {
    step.damage.push_back(fmt::format("file '{}' is not part of the checkpoint", file));
  }
  return true;
}

/// "step-" and digits alone: what can be a step's directory, and not what is left of its save.
bool IsNamedAsStep(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  return name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
         name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos;
}

SavedStep AuditStep(const std::string& directory, const std::string& name) {
  SavedStep step{.name = name, .sealed = true};
  const bool is_read = AddAudit(directory, step);
  if (HasAdapter(directory)) AddAudit(directory + "/" + kFolderOfAdapter, step);
  step.sealed = step.sealed && is_read;
  return step;
}

}  // namespace

SavedRoot ReadSavedRoot(const std::string& root, bool was_empty) {
  SavedRoot found{.was_empty = was_empty};
  std::error_code error;
  for (std::filesystem::directory_iterator it(root, error), end; !error && it != end;
       it.increment(error)) {
    found.names.push_back(it->path().filename().string());
  }
  if (error) {
    found.error = fmt::format("{}: cannot be listed: {}", root, error.message());
    return found;
  }
  std::sort(found.names.begin(), found.names.end());
  const auto latest = oracle::ReadWholeFile(root + "/latest", kLatestBytesMax);
  if (latest.ok())
    found.latest = latest.value();
  else if (std::filesystem::exists(root + "/latest"))
    found.error = latest.error().message;
  for (const std::string& name : found.names) {
    if (IsNamedAsStep(name)) found.steps.push_back(AuditStep(root + "/" + name, name));
  }
  return found;
}

}  // namespace shardproof
