// A checkpoint's record: every tensor read once, in pieces, through the plain digest.
#include <algorithm>
#include <vector>

#include "verify/oracle/digest_scalar.h"
#include "verify/oracle/header.h"
#include "verify/oracle/oracle.h"

namespace shardproof::oracle {
namespace {

constexpr uint64_t kPieceBytes = 1u << 20;

/// Reads tensors of one checkpoint. The last file stays open: neighbours are read one after
/// another.
class ImageReader {
 public:
  explicit ImageReader(const std::string& checkpoint) : checkpoint_(checkpoint) {}

  /// Bytes [start, start + length) of the tensor, which are there, across its parts.
  Result<std::string> Read(const PlacedTensor& tensor, uint64_t start, uint64_t length) {
    std::string bytes(length, '\0');
    uint64_t done = 0;
    for (const TensorLocation& part : tensor.parts) {
      if (start < part.byte_length && done < length) {
        const uint64_t count = std::min(length - done, part.byte_length - start);
        SP_TRY(ReadPart(part, start, count, bytes.data() + done));
        done += count;
        start = 0;
      } else {
        start -= std::min(start, part.byte_length);
      }
    }
    return bytes;
  }

 private:
  Status ReadPart(const TensorLocation& part, uint64_t start, uint64_t length, char* out) {
    const std::string path = PathOf(checkpoint_, part);
    if (file_ == nullptr || file_->path() != path) {
      SP_ASSIGN(file_, InputFile::Open(path));
    }
    return file_->ReadAt(part.file_offset + start, length, out);
  }

  const std::string& checkpoint_;
  std::shared_ptr<const InputFile> file_;
};

Status DigestBytes(const PlacedTensor& placed, ImageReader& image, FileTensor& tensor) {
  const uint64_t byte_length = placed.ByteLength();
  ScalarDigest digest(byte_length, *FindDtype(tensor.dtype));
  // Part by part, so that a search for a start does not grow with their number.
  for (const TensorLocation& part : placed.parts) {
    const PlacedTensor alone{part.name, part.shape, {part}};
    for (uint64_t done = 0; done < part.byte_length; done += kPieceBytes) {
      SP_ASSIGN(const std::string piece,
                image.Read(alone, done, std::min(kPieceBytes, part.byte_length - done)));
      digest.Add(piece.data(), piece.size());
    }
  }
  digest.Finish(tensor);
  return Ok();
}

/// The small tensor as a whole, and what was asked for of it, cut to what there is.
Status KeepBytes(const PlacedTensor& placed, ImageReader& image,
                 const std::vector<CaptureRequest>& captures, FileTensor& tensor) {
  const uint64_t byte_length = placed.ByteLength();
  const auto keep = [&](uint64_t start, uint64_t length) -> Status {
    SP_ASSIGN(std::string bytes, image.Read(placed, start, length));
    tensor.bytes.push_back({start, std::move(bytes)});
    return Ok();
  };
  if (byte_length <= kInlineBytesMax) return keep(0, byte_length);
  for (const CaptureRequest& capture : captures) {
    if (capture.tensor != placed.name || capture.byte_start >= byte_length) continue;
    const uint64_t length = std::min(capture.byte_length, byte_length - capture.byte_start);
    SP_TRY(keep(capture.byte_start, length));
  }
  return Ok();
}

Result<FileTensor> ReadTensor(const PlacedTensor& placed, ImageReader& image,
                              const std::vector<CaptureRequest>& captures) {
  const TensorLocation& first = placed.parts[0];
  FileTensor tensor;
  tensor.name = placed.name;
  tensor.file = first.file;
  tensor.file_offset = first.file_offset;
  tensor.dtype = first.dtype;
  tensor.shape = placed.shape;
  if (placed.IsAssembled()) {
    for (const TensorLocation& part : placed.parts) tensor.keys.push_back(part.name);
  }
  SP_TRY(DigestBytes(placed, image, tensor));
  SP_TRY(KeepBytes(placed, image, captures, tensor));
  return tensor;
}

Status ReadInto(const std::string& checkpoint, const std::vector<TensorLocation>& places,
                const std::vector<CaptureRequest>& captures,
                const std::vector<TensorCase>& declared,
                std::map<std::string, FileTensor>& tensors) {
  SP_ASSIGN(std::vector<PlacedTensor> all, Place(checkpoint, places, declared));
  // By file and offset, so that a disk reads forwards and one file is open at a time.
  const auto order = [](const PlacedTensor& tensor) {
    const TensorLocation& first = tensor.parts[0];
    return std::tie(first.file, first.file_offset, first.name);
  };
  std::sort(all.begin(), all.end(),
            [&](const PlacedTensor& a, const PlacedTensor& b) { return order(a) < order(b); });
  ImageReader image(checkpoint);
  for (const PlacedTensor& placed : all) {
    SP_ASSIGN(FileTensor tensor, ReadTensor(placed, image, captures));
    tensors.emplace(placed.name, std::move(tensor));
  }
  return Ok();
}

/// Each file's header ends where its first tensor begins: ReadHeader has seen that nothing is
/// between.
std::map<std::string, FileForm> FormsOf(const std::vector<TensorLocation>& places) {
  std::map<std::string, FileForm> forms;
  for (const TensorLocation& place : places) {
    FileForm& form = forms.try_emplace(place.file, FileForm{place.file_offset}).first->second;
    form.data_start = std::min(form.data_start, place.file_offset);
    form.data_bytes += place.byte_length;
    ++form.tensors;
  }
  return forms;
}

}  // namespace

CheckpointRecord ReadCheckpoint(const std::string& checkpoint,
                                const Result<std::vector<TensorLocation>>& places,
                                const std::vector<CaptureRequest>& captures,
                                const std::vector<TensorCase>& declared) {
  CheckpointRecord record;
  const Status status =
      places.ok() ? ReadInto(checkpoint, places.value(), captures, declared, record.tensors)
                  : Status(places.error());
  if (!status.ok()) {
    record.error = status.error().message;
    record.tensors.clear();
    return record;
  }
  record.files = FormsOf(places.value());
  record.total_size = ClaimedSize(checkpoint, record.indexed);
  return record;
}

}  // namespace shardproof::oracle
