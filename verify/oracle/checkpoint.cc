// A checkpoint's record: every tensor read once, in pieces, through the plain digest.
#include <algorithm>
#include <vector>

#include "verify/oracle/digest_scalar.h"
#include "verify/oracle/header.h"
#include "verify/oracle/oracle.h"

namespace shardproof::oracle {
namespace {

constexpr uint64_t kPieceBytes = 1u << 20;
constexpr uint64_t kInlineBytesMax = 4096;

Status DigestBytes(const InputFile& file, const TensorLocation& where, FileTensor& tensor) {
  ScalarDigest digest(where.byte_length, *FindDtype(where.dtype));
  std::vector<char> piece(std::min(kPieceBytes, where.byte_length));
  for (uint64_t done = 0; done < where.byte_length; done += piece.size()) {
    piece.resize(std::min<uint64_t>(kPieceBytes, where.byte_length - done));
    SP_TRY(file.ReadAt(where.file_offset + done, piece.size(), piece.data()));
    digest.Add(piece.data(), piece.size());
  }
  digest.Finish(tensor);
  return Ok();
}

/// The small tensor as a whole, and what was asked for of it, cut to what there is.
Status KeepBytes(const InputFile& file, const TensorLocation& where,
                 const std::vector<CaptureRequest>& captures, FileTensor& tensor) {
  const auto keep = [&](uint64_t start, uint64_t length) -> Status {
    ByteRange range{start, std::string(length, '\0')};
    SP_TRY(file.ReadAt(where.file_offset + start, length, range.bytes.data()));
    tensor.bytes.push_back(std::move(range));
    return Ok();
  };
  if (where.byte_length <= kInlineBytesMax) return keep(0, where.byte_length);
  for (const CaptureRequest& capture : captures) {
    if (capture.tensor != where.name || capture.byte_start >= where.byte_length) continue;
    const uint64_t length = std::min(capture.byte_length, where.byte_length - capture.byte_start);
    SP_TRY(keep(capture.byte_start, length));
  }
  return Ok();
}

Result<FileTensor> ReadTensor(const InputFile& file, const TensorLocation& where,
                              const std::vector<CaptureRequest>& captures) {
  FileTensor tensor;
  tensor.name = where.name;
  tensor.file = where.file;
  tensor.file_offset = where.file_offset;
  tensor.dtype = where.dtype;
  tensor.shape = where.shape;
  SP_TRY(DigestBytes(file, where, tensor));
  SP_TRY(KeepBytes(file, where, captures, tensor));
  return tensor;
}

Status ReadInto(const std::string& checkpoint, const std::vector<CaptureRequest>& captures,
                std::map<std::string, FileTensor>& tensors) {
  SP_ASSIGN(std::vector<TensorLocation> places, Locate(checkpoint));
  // By file and offset, so that a disk reads forwards and one file is open at a time.
  std::sort(places.begin(), places.end(), [](const TensorLocation& a, const TensorLocation& b) {
    return std::tie(a.file, a.file_offset, a.name) < std::tie(b.file, b.file_offset, b.name);
  });
  std::shared_ptr<const InputFile> file;
  for (const TensorLocation& where : places) {
    const std::string path = PathOf(checkpoint, where);
    if (file == nullptr || file->path() != path) {
      SP_ASSIGN(file, InputFile::Open(path));
    }
    SP_ASSIGN(FileTensor tensor, ReadTensor(*file, where, captures));
    tensors.emplace(where.name, std::move(tensor));
  }
  return Ok();
}

}  // namespace

CheckpointRecord ReadCheckpoint(const std::string& checkpoint,
                                const std::vector<CaptureRequest>& captures) {
  CheckpointRecord record;
  const Status status = ReadInto(checkpoint, captures, record.tensors);
  if (!status.ok()) {
    record.error = status.error().message;
    record.tensors.clear();
  }
  return record;
}

}  // namespace shardproof::oracle
