// A checkpoint's record: every tensor read once, in pieces, through the plain digest.
#include <algorithm>
#include <optional>
#include <vector>

#include "verify/oracle/cast.h"
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

/// A tensor's image as the model holds it: of its parts, one after the other, cast if it has
/// another floating-point dtype than they.
class ModelImage {
 public:
  ModelImage(const PlacedTensor& placed, ImageReader& image)
      : placed_(placed), image_(image), stored_(*FindDtype(placed.parts[0].dtype)) {
    if (placed.dtype.empty() || placed.dtype == stored_.name) return;
    dtype_ = FindDtype(placed.dtype);
    cast_.emplace(stored_, *dtype_);
  }

  const DtypeInfo& dtype() const { return *dtype_; }
  uint64_t ByteLength() const { return Grown(placed_.ByteLength()); }

  /// Bytes [start, start + length), of whole elements.
  Result<std::string> Read(uint64_t start, uint64_t length) {
    if (!cast_) return image_.Read(placed_, start, length);
    const uint64_t first = start / Width(), past = (start + length + Width() - 1) / Width();
    SP_ASSIGN(const std::string stored,
              image_.Read(placed_, first * stored_.bytes, (past - first) * stored_.bytes));
    const std::string cast = Cast(stored);
    return cast.substr(start - first * Width(), length);
  }

  Status Digest(FileTensor& tensor) {
    ScalarDigest digest(ByteLength(), *dtype_);
    // Part by part, so that a search for a start does not grow with their number.
    for (const TensorLocation& part : placed_.parts) {
      const PlacedTensor alone{part.name, part.shape, {part}};
      for (uint64_t done = 0; done < part.byte_length; done += kPieceBytes) {
        SP_ASSIGN(std::string piece,
                  image_.Read(alone, done, std::min(kPieceBytes, part.byte_length - done)));
        if (cast_) piece = Cast(piece);
        digest.Add(piece.data(), piece.size());
      }
    }
    digest.Finish(tensor);
    return Ok();
  }

 private:
  uint64_t Width() const { return static_cast<uint64_t>(dtype_->bytes); }
  uint64_t Grown(uint64_t stored) const {
    return stored / static_cast<uint64_t>(stored_.bytes) * Width();
  }
  std::string Cast(const std::string& stored) const {
    std::string out(Grown(stored.size()), '\0');
    cast_->Cast(stored.data(), stored.size() / static_cast<uint64_t>(stored_.bytes), out.data());
    return out;
  }

  const PlacedTensor& placed_;
  ImageReader& image_;
  const DtypeInfo& stored_;
  const DtypeInfo* dtype_ = &stored_;
  std::optional<ElementCast> cast_;
};

/// The small tensor as a whole, and what was asked for of it, cut to what there is.
Status KeepBytes(ModelImage& image, const std::vector<CaptureRequest>& captures,
                 FileTensor& tensor) {
  const uint64_t byte_length = image.ByteLength();
  const auto keep = [&](uint64_t start, uint64_t length) -> Status {
    SP_ASSIGN(std::string bytes, image.Read(start, length));
    tensor.bytes.push_back({start, std::move(bytes)});
    return Ok();
  };
  if (byte_length <= kInlineBytesMax) return keep(0, byte_length);
  for (const CaptureRequest& capture : captures) {
    if (capture.tensor != tensor.name || capture.byte_start >= byte_length) continue;
    const uint64_t length = std::min(capture.byte_length, byte_length - capture.byte_start);
    SP_TRY(keep(capture.byte_start, length));
  }
  return Ok();
}

Result<FileTensor> ReadTensor(const PlacedTensor& placed, ImageReader& reader,
                              const std::vector<CaptureRequest>& captures) {
  const TensorLocation& first = placed.parts[0];
  ModelImage image(placed, reader);
  FileTensor tensor;
  tensor.name = placed.name;
  tensor.file = first.file;
  tensor.file_offset = first.file_offset;
  tensor.dtype = image.dtype().name;
  tensor.shape = placed.shape;
  if (placed.IsAssembled()) {
    for (const TensorLocation& part : placed.parts) tensor.keys.push_back(part.name);
  }
  SP_TRY(image.Digest(tensor));
  SP_TRY(KeepBytes(image, captures, tensor));
  return tensor;
}

Status ReadInto(const std::string& checkpoint, std::vector<PlacedTensor> all,
                const std::vector<CaptureRequest>& captures,
                std::map<std::string, FileTensor>& tensors) {
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

CheckpointRecord ReadPlaced(const std::string& checkpoint,
                            const std::vector<TensorLocation>& places,
                            const std::vector<PlacedTensor>& placed,
                            const std::vector<CaptureRequest>& captures) {
  CheckpointRecord record;
  const Status status = ReadInto(checkpoint, placed, captures, record.tensors);
  if (!status.ok()) {
    record.error = status.error().message;
    record.tensors.clear();
    return record;
  }
  record.files = FormsOf(places);
  record.total_size = ClaimedSize(checkpoint, record.indexed);
  return record;
}

CheckpointRecord ReadCheckpoint(const std::string& checkpoint,
                                const Result<std::vector<TensorLocation>>& places,
                                const std::vector<CaptureRequest>& captures,
                                const std::vector<TensorCase>& declared) {
  if (!places.ok()) return {.error = places.error().message};
  const auto placed = Place(checkpoint, places.value(), declared);
  if (!placed.ok()) return {.error = placed.error().message};
  return ReadPlaced(checkpoint, places.value(), placed.value(), captures);
}

}  // namespace shardproof::oracle
