// The bytes of a checkpoint, each read once on as many threads as there are cores, into all sums.
#include "verify/audit/reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <thread>
#include <tuple>

#include "src/digest/digest.h"
#include "verify/audit/entry_check.h"
#include "verify/maps/tensor_reader.h"
#include "verify/oracle/dtype.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

using formats::Chunk;
using formats::StoredCheckpoint;
using formats::StoredTensor;
using oracle::InputFile;

constexpr uint64_t kPieceBytes = 4u << 20;   // that a thread takes in one go
constexpr uint64_t kThreadBytes = 1u << 20;  // less is read sooner than a thread is started
constexpr uint64_t kReadBytes = 256u
                                << 10;  // its buffer: what is read is in the cache for all sums

sp_float_format FormatOf(const std::string& dtype) {
  if (dtype == "F16" || dtype == "C32") return SP_F16;
  if (dtype == "BF16") return SP_BF16;
  if (dtype == "F32" || dtype == "C64") return SP_F32;
  if (dtype == "F64") return SP_F64;
  if (dtype == "F8_E4M3") return SP_F8_E4M3FN;
  if (dtype == "F8_E5M2") return SP_F8_E5M2;
  return SP_NO_FLOAT;
}

/// Of blocks' scales: how many are NaN or Inf, the first block that has one, and whether any is
/// other than zero.
struct SeenScales {
  uint64_t wrong = 0;
  uint64_t first_wrong = std::numeric_limits<uint64_t>::max();  ///< a block
  bool is_any_nonzero = false;
};

/// As many of these elements as fill whole blocks, if the tensor has such.
uint64_t WholeBlocks(const StoredTensor& tensor, uint64_t elements) {
  const uint64_t block = tensor.scales.block_bytes;
  return block == 0 ? elements : elements / block * block;
}

/// Part of a chunk: so many elements from `start` on, in the chunk's own row-major order.
struct Piece {
  size_t tensor = 0;
  const Chunk* chunk =
      nullptr;  ///< null: the tensor through a reader, since its elements lie apart
  uint64_t start = 0;
  uint64_t count = 0;
  bool is_first = false;  ///< whether no piece before it has any of its bytes
};

/// Bytes of a file that no piece has as they lie: headers, pickles, padding, and tensors whose
/// elements lie apart.
struct Gap {
  uint32_t file = 0;
  uint64_t start = 0;
  uint64_t length = 0;
};

/// Every element of the checkpoint in one piece, in the order of the files.
std::vector<Piece> PiecesOf(const StoredCheckpoint& checkpoint) {
  std::vector<Piece> pieces;
  for (size_t t = 0; t < checkpoint.tensors.size(); ++t) {
    const StoredTensor& tensor = checkpoint.tensors[t];
    if (tensor.Elements() == 0) continue;
    const uint64_t step = WholeBlocks(
        tensor, kPieceBytes / static_cast<uint64_t>(oracle::FindDtype(tensor.dtype)->bytes));
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
    return std::tuple(a.chunk->file, a.chunk->file_offset, a.start) <
           std::tuple(b.chunk->file, b.chunk->file_offset, b.start);
  });
  return pieces;
}

/// Marks pieces such that with the gaps \returned every byte of every file is had. Tensors may
/// share bytes, so not every piece is needed.
std::vector<Gap> CoverFiles(const StoredCheckpoint& checkpoint, std::vector<Piece>& pieces) {
  std::vector<uint64_t> covered(checkpoint.files.size(), 0);
  std::vector<Gap> gaps;
  const auto add_gap = [&](uint32_t file, uint64_t end) {
    for (uint64_t& at = covered[file]; at < end;) {
      const uint64_t length = std::min(kPieceBytes, end - at);
      gaps.push_back({file, at, length});
      at += length;
    }
  };
  for (Piece& piece : pieces) {  // in the order of the files
    if (piece.chunk == nullptr) continue;
    const auto width =
        static_cast<uint64_t>(oracle::FindDtype(checkpoint.tensors[piece.tensor].dtype)->bytes);
    const uint64_t begin = piece.chunk->file_offset + piece.start * width;
    if (begin < covered[piece.chunk->file]) continue;
    add_gap(piece.chunk->file, begin);
    piece.is_first = true;
    covered[piece.chunk->file] = begin + piece.count * width;
  }
  for (uint32_t file = 0; file < checkpoint.files.size(); ++file)
    add_gap(file, checkpoint.files[file].bytes);
  return gaps;
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
  const std::vector<int64_t> steps = formats::RowMajorStrides(tensor.shape);
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
      global += own * static_cast<uint64_t>(steps[dim]);
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

const std::vector<sp_run> kNoRuns;

/// Takes pieces until there are none, into sums of its own.
class Reading {
 public:
  Reading(const StoredCheckpoint& checkpoint, const std::vector<Piece>& pieces,
          const std::vector<Gap>& gaps, std::atomic<size_t>& next, EntryCheck* entries,
          bool digests)
      : checkpoint_(checkpoint),
        pieces_(pieces),
        gaps_(gaps),
        next_(next),
        entries_(entries),
        digests_(digests),
        sums_(checkpoint.tensors.size()),
        seen_scales_(checkpoint.tensors.size()),
        file_sums_(checkpoint.files.size()) {}

  void Run() {
    for (size_t i = next_++; i < pieces_.size() + gaps_.size(); i = next_++) {
      const Status read =
          i < pieces_.size() ? ReadPiece(pieces_[i]) : ReadGap(gaps_[i - pieces_.size()]);
      if (!read.ok()) errors_.push_back(read.error().message);
    }
  }

  const std::vector<sp_summary>& sums() const { return sums_; }
  const std::vector<SeenScales>& seen_scales() const { return seen_scales_; }
  const std::vector<sp_summary>& file_sums() const { return file_sums_; }
  const std::vector<std::string>& errors() const { return errors_; }

 private:
  Status ReadPiece(const Piece& piece) {
    const StoredTensor& tensor = checkpoint_.tensors[piece.tensor];
    const Status read = piece.chunk == nullptr ? ReadApart(piece, tensor) : Read(piece, tensor);
    return read.ok() ? read : Status(read.error().While("tensor " + oracle::Quote(tensor.name)));
  }

  void Reserve(uint64_t bytes) {
    if (buffer_.size() < bytes) buffer_.resize(bytes);
  }

  Status ReadBytes(uint32_t file, uint64_t start, uint64_t length) {
    if (file_ == nullptr || open_ != file) {
      SP_ASSIGN(file_, InputFile::Open(checkpoint_.files[file].path));
      open_ = file;
    }
    Reserve(length);
    return file_->ReadAt(start, length, buffer_.data());
  }

  Status ReadGap(const Gap& gap) {
    const uint64_t end = gap.start + gap.length;
    for (uint64_t start = gap.start; start < end; start += kReadBytes) {
      const uint64_t length = std::min(kReadBytes, end - start);
      SP_TRY(ReadBytes(gap.file, start, length));
      const sp_run run{start, length, 1, 0, buffer_.data(), 0};
      if (digests_) sp_digest_runs(&file_sums_[gap.file], &run, 1, SP_NO_FLOAT);
      if (entries_ != nullptr) entries_->Add(gap.file, start, {buffer_.data(), length});
    }
    return Ok();
  }

  Status Read(const Piece& piece, const StoredTensor& tensor) {
    const auto width = static_cast<uint64_t>(oracle::FindDtype(tensor.dtype)->bytes);
    const uint64_t end = piece.start + piece.count;
    Piece part = piece;
    for (; part.start < end; part.start += part.count) {
      part.count = std::min(WholeBlocks(tensor, kReadBytes / width), end - part.start);
      const uint64_t start = piece.chunk->file_offset + part.start * width;
      SP_TRY(ReadBytes(piece.chunk->file, start, part.count * width));
      if (entries_ != nullptr && piece.is_first) {
        entries_->Add(piece.chunk->file, start, {buffer_.data(), part.count * width});
      }
      const auto runs = digests_ ? RunsOf(tensor, part, width, buffer_.data()) : kNoRuns;
      AddElements(piece.tensor, runs, part.count);
      if (tensor.scales.block_bytes > 0) AddScales(piece.tensor, part);
    }
    return Ok();
  }

  /// Adds so many elements in the buffer, which belong where `runs` says, to the sums of their
  /// tensor.
  void AddElements(size_t index, const std::vector<sp_run>& runs, uint64_t count) {
    const std::string& dtype = checkpoint_.tensors[index].dtype;
    sp_summary& sum = sums_[index];
    if (digests_) {
      sp_digest_runs(&sum, runs.data(), runs.size(), FormatOf(dtype));
    } else {
      const auto width = static_cast<uint64_t>(oracle::FindDtype(dtype)->bytes);
      sp_count_non_finite(&sum, buffer_.data(), count * width, FormatOf(dtype));
    }
    sum.nan_count += OneByteNans(dtype, count);
  }

  /// Looks at the scales of the blocks in the buffer, which `part` of the tensor is.
  void AddScales(size_t index, const Piece& part) {
    const std::string& dtype = checkpoint_.tensors[index].scales.dtype;
    if (dtype == "F16") {
      AddScales<uint16_t>(index, part, 0x7c00, 0x7fff);
    } else if (dtype == "F32") {
      AddScales<uint32_t>(index, part, 0x7f800000, 0x7fffffff);
    } else {  // F8_E8M0, which has no zero
      AddScales<uint8_t>(index, part, 0xff, 0);
    }
  }

  /// \param exponent  the bits that are all set in NaN and Inf, and in no number.
  /// \param number  those of which none is set in a zero of either sign; 0: there is no zero.
  template <typename Bits>
  void AddScales(size_t index, const Piece& part, Bits exponent, Bits number) {
    const formats::BlockScales& scales = checkpoint_.tensors[index].scales;
    SeenScales& seen = seen_scales_[index];
    for (const uint64_t at : scales.at) {
      for (uint64_t start = 0; start < part.count; start += scales.block_bytes) {
        Bits bits;
        std::memcpy(&bits, buffer_.data() + start + at, sizeof bits);
        seen.is_any_nonzero |= number == 0 || (bits & number) != 0;
        if ((bits & exponent) != exponent) continue;
        ++seen.wrong;
        seen.first_wrong = std::min(seen.first_wrong, (part.start + start) / scales.block_bytes);
      }
    }
  }

  /// NaN of dtypes that the digest does not know, in the buffer.
  uint64_t OneByteNans(const std::string& dtype, uint64_t count) const {
    const bool is_scale = dtype == "F8_E8M0";
    if (!is_scale && !dtype.ends_with("FNUZ")) return 0;
    const char nan = is_scale ? '\xff' : '\x80';
    return static_cast<uint64_t>(
        std::count(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(count), nan));
  }

  Status ReadApart(const Piece& piece, const StoredTensor& tensor) {
    const maps::Reader reader = maps::ReadStored(checkpoint_, tensor, 0);
    const uint64_t step = kReadBytes / reader->width();
    for (uint64_t start = 0; start < piece.count; start += step) {
      const uint64_t count = std::min(step, piece.count - start);
      Reserve(count * reader->width());
      SP_TRY(reader->Read(start, count, buffer_.data()));
      AddElements(piece.tensor,
                  {{start * reader->width(), count * reader->width(), 1, 0, buffer_.data(), 0}},
                  count);
    }
    return Ok();
  }

  const StoredCheckpoint& checkpoint_;
  const std::vector<Piece>& pieces_;
  const std::vector<Gap>& gaps_;
  std::atomic<size_t>& next_;
  EntryCheck* const entries_;  ///< null: no CRC-32 is looked at
  const bool digests_;
  std::vector<sp_summary> sums_;         ///< of tensors
  std::vector<SeenScales> seen_scales_;  ///< likewise
  std::vector<sp_summary> file_sums_;    ///< of what is between them, by file
  std::vector<std::string> errors_;
  std::vector<char> buffer_;  ///< as large as what was read so far
  std::shared_ptr<const InputFile> file_;
  uint32_t open_ = 0;
};

/// Whether the blocks of a tensor differ from each other.
bool DoBlocksDiffer(const StoredCheckpoint& checkpoint, const StoredTensor& tensor) {
  const maps::Reader reader = maps::ReadStored(checkpoint, tensor, kReadBytes);
  const uint64_t width = tensor.scales.block_bytes;
  std::string first(width, '\0'), block = first;
  for (uint64_t at = 0; at < reader->elements(); at += width) {
    if (!reader->Read(at, width, block.data()).ok()) return false;  // damage of its own
    if (at == 0) first = block;
    if (block != first) return true;
  }
  return false;
}

/// A scale that is no number makes its whole block none. If all are zero, blocks with other codes
/// than the first cannot have been written so, since a tensor of zeros has the same in all.
void HoldScales(const StoredCheckpoint& checkpoint, const std::vector<Reading>& readings,
                AuditResult& result) {
  for (size_t t = 0; t < checkpoint.tensors.size(); ++t) {
    const StoredTensor& tensor = checkpoint.tensors[t];
    if (tensor.scales.block_bytes == 0) continue;
    SeenScales all;
    for (const Reading& reading : readings) {
      const SeenScales& seen = reading.seen_scales()[t];
      all.wrong += seen.wrong;
      all.first_wrong = std::min(all.first_wrong, seen.first_wrong);
      all.is_any_nonzero |= seen.is_any_nonzero;
    }
    const auto found = [&](const std::string& what) {
      result.damage.push_back(fmt::format("{}: tensor {}: expected {}",
                                          oracle::Printable(result.path),
                                          oracle::Quote(tensor.name), what));
    };
    if (all.wrong > 0) {
      found(
          fmt::format("scales that are numbers, found {} that {} NaN or Inf, the first in block {}",
                      all.wrong, all.wrong == 1 ? "is" : "are", all.first_wrong));
    }
    if (!all.is_any_nonzero && DoBlocksDiffer(checkpoint, tensor))
      found("scales that are not zero, since its blocks have other codes, found only zeros");
  }
}

}  // namespace

Digest DigestOf(const std::string& text) {
  sp_summary sum = {};
  const sp_run run{0, text.size(), 1, 0, text.data(), 0};
  sp_digest_runs(&sum, &run, 1, SP_NO_FLOAT);
  return Digest(sum.digest);
}

void Describe(const StoredCheckpoint& checkpoint, AuditResult& result) {
  for (const formats::StoredFile& file : checkpoint.files)
    result.files.push_back({file.name, file.bytes, {}});
  for (const StoredTensor& tensor : checkpoint.tensors) {
    result.tensors.push_back({.name = tensor.name,
                              .dtype = tensor.dtype,
                              .shape = tensor.shape,
                              .chunks = tensor.chunks.size(),
                              .elements = tensor.Elements(),
                              .bytes = tensor.Bytes()});
  }
  for (const formats::StoredValue& value : checkpoint.values) {
    result.values.push_back({value.name, value.text, DigestOf(value.text)});
  }
}

void ReadAll(const StoredCheckpoint& checkpoint, AuditSums sums, AuditResult& result) {
  if (!sums.values) return;
  std::vector<Piece> pieces = PiecesOf(checkpoint);
  const std::vector<Gap> gaps = CoverFiles(checkpoint, pieces);
  std::atomic<size_t> next = 0;
  EntryCheck entries(checkpoint);
  uint64_t bytes = 0;
  for (const formats::StoredFile& file : checkpoint.files) bytes += file.bytes;
  const size_t thread_count =
      bytes < kThreadBytes ? 1
                           : std::clamp<size_t>(std::thread::hardware_concurrency(), 1,
                                                std::max<size_t>(pieces.size() + gaps.size(), 1));
  std::vector<Reading> readings(
      thread_count,
      Reading(checkpoint, pieces, gaps, next, sums.crcs ? &entries : nullptr, sums.digests));
  std::vector<std::thread> threads;
  for (size_t i = 1; i < thread_count; ++i) threads.emplace_back([&, i] { readings[i].Run(); });
  readings[0].Run();
  for (std::thread& thread : threads) thread.join();
  for (const Reading& reading : readings) {
    result.damage.insert(result.damage.end(), reading.errors().begin(), reading.errors().end());
    for (size_t t = 0; t < result.tensors.size(); ++t) {
      AuditedTensor& tensor = result.tensors[t];
      tensor.digest += Digest(reading.sums()[t].digest);
      tensor.nan_count += reading.sums()[t].nan_count;
      tensor.inf_count += reading.sums()[t].inf_count;
    }
    for (size_t f = 0; f < result.files.size(); ++f) {
      result.files[f].digest += Digest(reading.file_sums()[f].digest);
    }
  }
  HoldScales(checkpoint, readings, result);
  if (!sums.crcs) return;
  const std::vector<std::string> rotten = entries.Damage();
  result.damage.insert(result.damage.end(), rotten.begin(), rotten.end());
  result.entries_checked = entries.Checked();
  result.entries_unchecked = entries.Unchecked();
}

}  // namespace shardproof
