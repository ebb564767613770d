#include "verify/run/saved_state.h"

#include <algorithm>

#include "verify/compare/tensor_reader.h"
#include "verify/formats/stored.h"
#include "verify/oracle/digest_scalar.h"

namespace shardproof {
namespace {

constexpr uint64_t kPieceBytes = 1u << 20;
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

}  // namespace shardproof
