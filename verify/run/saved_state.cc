#include "verify/run/saved_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "verify/audit/audit.h"
#include "verify/compare/tensor_reader.h"
#include "verify/formats/stored.h"
#include "verify/oracle/digest_scalar.h"

namespace shardproof {
namespace {

constexpr uint64_t kPieceBytes = 1u << 20;
constexpr uint64_t kLatestBytesMax = 4096;
constexpr uint64_t kInlineBytesMax = 4096;  // smaller tensors are on record in full

using formats::StoredCheckpoint;
using formats::StoredTensor;

Result<FileTensor> ReadTensor(const StoredCheckpoint& checkpoint, const StoredTensor& stored) {
  const compare::FileOpener open = [&](uint32_t file) {
    return oracle::InputFile::Open(checkpoint.files[file].path);
  };
  const auto reader = compare::ReadStored(open, stored, 0);
  FileTensor tensor{.name = stored.name, .dtype = stored.dtype, .shape = stored.shape};
  if (!stored.chunks.empty()) {
    tensor.file = checkpoint.files[stored.chunks[0].file].name;
    tensor.file_offset = stored.chunks[0].file_offset;
  }
  oracle::ScalarDigest digest(stored.Bytes(), reader->dtype());
  const uint64_t width = reader->width();
  const uint64_t step = std::max<uint64_t>(kPieceBytes / width, 1);
  std::string piece;
  for (uint64_t done = 0; done < reader->elements(); done += step) {
    const uint64_t count = std::min(step, reader->elements() - done);
    piece.resize(count * width);
    SP_TRY(reader->Read(done, count, piece.data()));
    digest.Add(piece.data(), piece.size());
  }
  digest.Finish(tensor);
  if (stored.Bytes() <= kInlineBytesMax) tensor.bytes.push_back({0, std::move(piece)});
  return tensor;
}

}  // namespace

CheckpointRecord ReadSavedState(const std::string& directory) {
  CheckpointRecord record;
  const auto opened = formats::OpenStored(directory);
  if (!opened.ok()) {
    record.error = opened.error().message;
    return record;
  }
  for (const StoredTensor& stored : opened.value().tensors) {
    auto tensor = ReadTensor(opened.value(), stored);
    if (!tensor.ok()) {
      record.error = tensor.error().message;
      return record;
    }
    record.tensors.emplace(stored.name, std::move(tensor).value());
  }
  return record;
}

namespace {

/// "step-" and digits alone: what can be a step's directory, and not what is left of its save.
bool IsNamedAsStep(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  return name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
         name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos;
}

SavedStep AuditStep(const std::string& directory, const std::string& name) {
  SavedStep step{.name = name};
  auto audited = Audit(directory);
  if (!audited.ok()) {
    step.damage.push_back(audited.error().message);
    return step;
  }
  AuditResult& found = audited.value();
  step.tensors = static_cast<int64_t>(found.tensors.size());
  step.sealed = std::filesystem::exists(SealPath(directory));
  if (step.sealed) {
    const Status held = HoldAgainstSeal(SealPath(directory), found);
    if (!held.ok()) found.damage.push_back(held.error().message);
  }
  step.damage = std::move(found.damage);
  for (const std::string& file : found.unread) {
    step.damage.push_back(fmt::format("file '{}' is no part of the checkpoint", file));
  }
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
  if (latest.ok()) found.latest = latest.value();
  else if (std::filesystem::exists(root + "/latest")) found.error = latest.error().message;
  for (const std::string& name : found.names) {
    if (IsNamedAsStep(name)) found.steps.push_back(AuditStep(root + "/" + name, name));
  }
  return found;
}

}  // namespace shardproof
