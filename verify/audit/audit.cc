#include "verify/audit/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "verify/compare/tensor_reader.h"
#include "verify/digest/digest.h"
#include "verify/formats/stored.h"
#include "verify/oracle/dtype.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

using formats::Chunk;
using formats::StoredCheckpoint;
using formats::StoredTensor;
using oracle::InputFile;

constexpr uint64_t kPieceBytes = 4u << 20;  // a thread's buffer

sp_float_format FormatOf(const std::string& dtype) {
  if (dtype == "F16") return SP_F16;
  if (dtype == "BF16") return SP_BF16;
  if (dtype == "F32" || dtype == "C64") return SP_F32;
  if (dtype == "F64") return SP_F64;
  if (dtype == "F8_E4M3") return SP_F8_E4M3FN;
  if (dtype == "F8_E5M2") return SP_F8_E5M2;
  return SP_NO_FLOAT;
}

/// Part of a chunk: so many elements from `start` on, in the chunk's own row-major order.
struct Piece {
  size_t tensor = 0;
  const Chunk* chunk =
      nullptr;  ///< null: the tensor through a reader, since its elements lie apart
  uint64_t start = 0;
  uint64_t count = 0;
};

/// Every element of the checkpoint in one piece, in the order of the files.
std::vector<Piece> PiecesOf(const StoredCheckpoint& checkpoint) {
  std::vector<Piece> pieces;
  for (size_t t = 0; t < checkpoint.tensors.size(); ++t) {
    const StoredTensor& tensor = checkpoint.tensors[t];
    if (tensor.Elements() == 0) continue;
    const uint64_t step =
        kPieceBytes / static_cast<uint64_t>(oracle::FindDtype(tensor.dtype)->bytes);
    if (!std::all_of(tensor.chunks.begin(), tensor.chunks.end(),
                     [](const Chunk& chunk) { return chunk.IsRowMajor(); })) {
      pieces.push_back({.tensor = t, .count = tensor.Elements()});
      continue;
    }
    for (const Chunk& chunk : tensor.chunks) {
      for (uint64_t start = 0; start < chunk.Elements(); start += step) {
        pieces.push_back({t, &chunk, start, std::min(step, chunk.Elements() - start)});
      }
    }
  }
  std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    if (a.chunk == nullptr || b.chunk == nullptr) return a.chunk != nullptr && b.chunk == nullptr;
    return std::pair(a.chunk->file, a.chunk->file_offset) <
           std::pair(b.chunk->file, b.chunk->file_offset);
  });
  return pieces;
}

/// Where the bytes of a piece belong in the tensor's row-major image. `data` holds the piece.
std::vector<sp_run> RunsOf(const StoredTensor& tensor, const Piece& piece, uint64_t width,
                           const char* data) {
  const Chunk& chunk = *piece.chunk;
  const size_t dims = chunk.sizes.size();
  // The chunk is runs of `length` elements: of the dims from `inner` on it has all, or a part of
  // the first.
  size_t inner = dims;
  uint64_t length = 1;
  while (inner > 0) {
    --inner;
    length *= static_cast<uint64_t>(chunk.sizes[inner]);
    if (chunk.sizes[inner] != tensor.shape[inner]) break;
  }
  std::vector<uint64_t> steps(dims, 1);
  for (size_t dim = dims; dim-- > 1;)
    steps[dim - 1] = steps[dim] * static_cast<uint64_t>(tensor.shape[dim]);
  std::vector<sp_run> runs;
  for (uint64_t at = piece.start; at < piece.start + piece.count;) {
    uint64_t rest = at / length;
    uint64_t global = at % length;
    for (size_t dim = dims; dim-- > 0;) {
      uint64_t own = static_cast<uint64_t>(chunk.offsets[dim]);
      if (dim < inner) {
        own += rest % static_cast<uint64_t>(chunk.sizes[dim]);
        rest /= static_cast<uint64_t>(chunk.sizes[dim]);
      }
      global += own * steps[dim];
    }
    const uint64_t count = std::min(length - at % length, piece.start + piece.count - at);
    const sp_run run{global * width, count * width, 1, 0, data + (at - piece.start) * width, 0};
    at += count;
    if (!runs.empty() && runs.back().length == run.length) {
      sp_run& last = runs.back();
      const uint64_t stride =
          run.global_start - last.global_start - (last.count - 1) * last.global_stride;
      if (last.count == 1 || stride == last.global_stride) {
        last.global_stride = stride;
        last.data_stride = static_cast<int64_t>(last.length);
        ++last.count;
        continue;
      }
    }
    runs.push_back(run);
  }
  return runs;
}

/// Takes pieces until there are none, into sums of its own.
class Reading {
 public:
  Reading(const StoredCheckpoint& checkpoint, const std::vector<Piece>& pieces,
          std::atomic<size_t>& next)
      : checkpoint_(checkpoint), pieces_(pieces), next_(next), sums_(checkpoint.tensors.size()) {}

  void Run() {
    for (size_t i = next_++; i < pieces_.size(); i = next_++) {
      const StoredTensor& tensor = checkpoint_.tensors[pieces_[i].tensor];
      const Status read =
          pieces_[i].chunk == nullptr ? ReadApart(pieces_[i], tensor) : Read(pieces_[i], tensor);
      if (!read.ok())
        errors_.push_back(read.error().While("tensor " + oracle::Quote(tensor.name)).message);
    }
  }

  const std::vector<sp_summary>& sums() const { return sums_; }
  const std::vector<std::string>& errors() const { return errors_; }

 private:
  Status Read(const Piece& piece, const StoredTensor& tensor) {
    const auto width = static_cast<uint64_t>(oracle::FindDtype(tensor.dtype)->bytes);
    if (file_ == nullptr || open_ != piece.chunk->file) {
      SP_ASSIGN(file_, InputFile::Open(checkpoint_.files[piece.chunk->file].path));
      open_ = piece.chunk->file;
    }
    SP_TRY(file_->ReadAt(piece.chunk->file_offset + piece.start * width, piece.count * width,
                         buffer_.data()));
    const std::vector<sp_run> runs = RunsOf(tensor, piece, width, buffer_.data());
    sp_digest_runs(&sums_[piece.tensor], runs.data(), runs.size(), FormatOf(tensor.dtype));
    return Ok();
  }

  Status ReadApart(const Piece& piece, const StoredTensor& tensor) {
    const auto open = [this](uint32_t index) {
      return InputFile::Open(checkpoint_.files[index].path);
    };
    const compare::Reader reader = compare::ReadStored(open, tensor, 0);
    const uint64_t step = kPieceBytes / reader->width();
    for (uint64_t start = 0; start < piece.count; start += step) {
      const uint64_t count = std::min(step, piece.count - start);
      SP_TRY(reader->Read(start, count, buffer_.data()));
      const sp_run run{start * reader->width(), count * reader->width(), 1, 0, buffer_.data(), 0};
      sp_digest_runs(&sums_[piece.tensor], &run, 1, FormatOf(tensor.dtype));
    }
    return Ok();
  }

  const StoredCheckpoint& checkpoint_;
  const std::vector<Piece>& pieces_;
  std::atomic<size_t>& next_;
  std::vector<sp_summary> sums_;
  std::vector<std::string> errors_;
  std::vector<char> buffer_ = std::vector<char>(kPieceBytes);
  std::shared_ptr<const InputFile> file_;
  uint32_t open_ = 0;
};

void ReadAll(const StoredCheckpoint& checkpoint, AuditResult& result) {
  const std::vector<Piece> pieces = PiecesOf(checkpoint);
  std::atomic<size_t> next = 0;
  const size_t thread_count = std::clamp<size_t>(std::thread::hardware_concurrency(), 1,
                                                 std::max<size_t>(pieces.size(), 1));
  std::vector<Reading> readings(thread_count, Reading(checkpoint, pieces, next));
  std::vector<std::thread> threads;
  for (Reading& reading : readings) threads.emplace_back([&reading] { reading.Run(); });
  for (std::thread& thread : threads) thread.join();
  for (const Reading& reading : readings) {
    result.damage.insert(result.damage.end(), reading.errors().begin(), reading.errors().end());
    for (size_t t = 0; t < result.tensors.size(); ++t) {
      AuditedTensor& tensor = result.tensors[t];
      tensor.digest += Digest(reading.sums()[t].digest);
      tensor.nan_count += reading.sums()[t].nan_count;
      tensor.inf_count += reading.sums()[t].inf_count;
    }
  }
}

Digest DigestOf(const std::string& text) {
  sp_summary sum = {};
  const sp_run run{0, text.size(), 1, 0, text.data(), 0};
  sp_digest_runs(&sum, &run, 1, SP_NO_FLOAT);
  return Digest(sum.digest);
}

}  // namespace

Result<AuditResult> Audit(const std::string& path) {
  AuditResult result;
  result.path = path;
  SP_ASSIGN(const StoredCheckpoint checkpoint, formats::OpenStored(path, &result.damage));
  result.format = checkpoint.format;
  result.files = checkpoint.files.size();
  for (const StoredTensor& tensor : checkpoint.tensors) {
    result.tensors.push_back({.name = tensor.name,
                              .dtype = tensor.dtype,
                              .shape = tensor.shape,
                              .chunks = tensor.chunks.size(),
                              .elements = tensor.Elements(),
                              .bytes = tensor.Bytes()});
    result.bytes += tensor.Bytes();
  }
  for (const formats::StoredValue& value : checkpoint.values) {
    result.values.push_back({value.name, value.text, DigestOf(value.text)});
  }
  ReadAll(checkpoint, result);
  return result;
}

}  // namespace shardproof
