// A tensor in row-major order out of its pieces in files.
#include <algorithm>
#include <cstring>
#include <list>

#include "verify/maps/tensor_reader.h"

namespace shardproof::maps {
namespace {

using formats::Chunk;
using formats::StoredTensor;
using oracle::InputFile;

constexpr size_t kOpenFilesMax = 64;

/// One stretch of a file, read ahead.
struct Window {
  const Chunk* chunk;
  uint64_t start;
  std::vector<char> bytes;
};

class StoredReader : public TensorReader {
 public:
  StoredReader(FileOpener open, const StoredTensor& tensor, uint64_t window_bytes)
      : TensorReader(*oracle::FindDtype(tensor.dtype), tensor.shape),
        open_(std::move(open)),
        tensor_(tensor) {
    const std::vector<int64_t> strides = formats::RowMajorStrides(tensor.shape);
    steps_.assign(strides.begin(), strides.end());
    for (const Chunk& chunk : tensor.chunks) row_major_.push_back(chunk.IsRowMajor());
    const uint64_t fitting = kWindowsBytesMax / std::max<uint64_t>(PiecesOfARow(), 1);
    const bool whole = tensor.chunks.size() == 1 && row_major_[0];
    window_bytes_ = whole ? window_bytes : std::min(kWindowBytesMax, fitting);
  }

  Status Read(uint64_t start, uint64_t count, char* out) override {
    while (count > 0) {
      const std::vector<int64_t> at = CoordinatesOf(start);
      const size_t index = ChunkAt(at);
      const uint64_t step = std::min(count, RunAt(index, at));
      SP_TRY(ReadRun(tensor_.chunks[index], at, step, out));
      start += step;
      count -= step;
      out += step * width();
    }
    return Ok();
  }

 private:
  /// How many pieces a reading forwards goes through in turn: those beside the first along dim 0.
  uint64_t PiecesOfARow() const {
    const auto& chunks = tensor_.chunks;
    if (chunks.empty() || chunks[0].offsets.empty()) return 1;
    const auto end = std::find_if(chunks.begin(), chunks.end(), [&](const Chunk& chunk) {
      return chunk.offsets[0] != chunks[0].offsets[0];
    });
    return static_cast<uint64_t>(end - chunks.begin());
  }

  std::vector<int64_t> CoordinatesOf(uint64_t element) const {
    std::vector<int64_t> at(steps_.size());
    for (size_t dim = 0; dim < at.size(); ++dim) {
      at[dim] = static_cast<int64_t>(element / steps_[dim]);
      element %= steps_[dim];
    }
    return at;
  }

  static bool Holds(const Chunk& chunk, const std::vector<int64_t>& at) {
    for (size_t dim = 0; dim < at.size(); ++dim) {
      if (at[dim] < chunk.offsets[dim] || at[dim] - chunk.offsets[dim] >= chunk.sizes[dim])
        return false;
    }
    return true;
  }

  /// The chunk of an element, which there is: chunks tile. Tried first: the last one, the one
  /// behind it and the first of its row.
  size_t ChunkAt(const std::vector<int64_t>& at) {
    const auto& chunks = tensor_.chunks;
    if (Holds(chunks[last_], at)) return last_;
    if (last_ + 1 < chunks.size() && Holds(chunks[last_ + 1], at)) {
      if (!at.empty() && chunks[last_ + 1].offsets[0] != chunks[last_].offsets[0]) row_ = last_ + 1;
      return ++last_;
    }
    if (Holds(chunks[row_], at)) return last_ = row_;
    for (last_ = 0; !Holds(chunks[last_], at);) ++last_;
    return last_;
  }

  /// Elements from `at` on that are the next both in the tensor and in the chunk's file.
  uint64_t RunAt(size_t index, const std::vector<int64_t>& at) const {
    const Chunk& chunk = tensor_.chunks[index];
    uint64_t run = 1;
    for (size_t dim = at.size(); dim-- > 0;) {
      if (!row_major_[index] && (dim + 1 < at.size() || chunk.strides[dim] != 1)) break;
      const auto left = static_cast<uint64_t>(chunk.offsets[dim] + chunk.sizes[dim] - at[dim]);
      // What is left of this dim, less what was gone already of the dims behind it.
      uint64_t gone = 0;
      for (size_t behind = dim + 1; behind < at.size(); ++behind) {
        gone += static_cast<uint64_t>(at[behind]) * steps_[behind];
      }
      run = left * steps_[dim] - gone;
      if (chunk.sizes[dim] != tensor_.shape[dim]) break;
    }
    return run;
  }

  Status ReadRun(const Chunk& chunk, const std::vector<int64_t>& at, uint64_t count, char* out) {
    uint64_t element = 0;
    for (size_t dim = 0; dim < at.size(); ++dim) {
      element += static_cast<uint64_t>(at[dim] - chunk.offsets[dim]) *
                 static_cast<uint64_t>(chunk.strides[dim]);
    }
    const uint64_t begin = chunk.file_offset + element * width();
    const uint64_t length = count * width();
    SP_ASSIGN(const InputFile* file, FileOf(chunk));
    if (length * 2 > window_bytes_) return file->ReadAt(begin, length, out);
    auto window = std::find_if(windows_.begin(), windows_.end(),
                               [&](const Window& w) { return w.chunk == &chunk; });
    if (window == windows_.end()) {
      if (windows_.size() >= kWindowsBytesMax / window_bytes_) windows_.pop_back();
      window = windows_.insert(windows_.begin(), Window{&chunk, 0, {}});
    }
    if (begin < window->start || begin + length > window->start + window->bytes.size()) {
      window->start = begin;
      window->bytes.resize(std::min(window_bytes_, std::max(length, EndOf(chunk) - begin)));
      SP_TRY(file->ReadAt(begin, window->bytes.size(), window->bytes.data()));
    }
    std::memcpy(out, window->bytes.data() + (begin - window->start), length);
    if (window != windows_.begin()) windows_.splice(windows_.begin(), windows_, window);
    return Ok();
  }

  /// Where the chunk's last element ends in its file.
  uint64_t EndOf(const Chunk& chunk) const {
    uint64_t last = 0;
    for (size_t dim = 0; dim < chunk.sizes.size(); ++dim) {
      last +=
          static_cast<uint64_t>(chunk.sizes[dim] - 1) * static_cast<uint64_t>(chunk.strides[dim]);
    }
    return chunk.file_offset + (last + 1) * width();
  }

  Result<const InputFile*> FileOf(const Chunk& chunk) {
    for (const auto& [index, file] : files_) {
      if (index == chunk.file) return file.get();
    }
    if (files_.size() == kOpenFilesMax) files_.erase(files_.begin());
    SP_ASSIGN(std::shared_ptr<const InputFile> file, open_(chunk.file));
    files_.emplace_back(chunk.file, std::move(file));
    return files_.back().second.get();
  }

  FileOpener open_;
  const StoredTensor& tensor_;
  std::vector<uint64_t> steps_;  ///< elements of the tensor from one to the next, per dim
  std::vector<bool> row_major_;  ///< per chunk: whether its elements lie one after the other
  uint64_t window_bytes_;
  size_t last_ = 0;
  size_t row_ = 0;
  std::list<Window> windows_;  ///< the last used first
  std::vector<std::pair<uint32_t, std::shared_ptr<const InputFile>>> files_;
};

/// A matrix that lies column by column.
bool IsTransposed(const StoredTensor& tensor) {
  if (tensor.chunks.size() != 1 || tensor.shape.size() != 2) return false;
  const Chunk& chunk = tensor.chunks[0];
  return chunk.strides[0] == 1 && chunk.strides[1] == tensor.shape[0] && tensor.shape[0] > 1 &&
         tensor.shape[1] > 1;
}

/// Keeps the description of the matrix as it lies.
class TransposedReader : public TensorReader {
 public:
  TransposedReader(FileOpener open, const StoredTensor& tensor)
      : TensorReader(*oracle::FindDtype(tensor.dtype), tensor.shape), as_it_lies_(tensor) {
    Chunk& chunk = as_it_lies_.chunks[0];
    std::swap(as_it_lies_.shape[0], as_it_lies_.shape[1]);
    std::swap(chunk.sizes[0], chunk.sizes[1]);
    std::swap(chunk.strides[0], chunk.strides[1]);
    inner_ = Transpose(std::make_unique<StoredReader>(std::move(open), as_it_lies_, 0), 0, 1);
  }
  Status Read(uint64_t start, uint64_t count, char* out) override {
    return inner_->Read(start, count, out);
  }

 private:
  StoredTensor as_it_lies_;
  Reader inner_;
};

}  // namespace

Reader ReadStored(FileOpener open, const StoredTensor& tensor, uint64_t window_bytes) {
  if (IsTransposed(tensor)) return std::make_unique<TransposedReader>(std::move(open), tensor);
  return std::make_unique<StoredReader>(std::move(open), tensor, window_bytes);
}

Reader ReadStored(const formats::StoredCheckpoint& checkpoint, const StoredTensor& tensor,
                  uint64_t window_bytes) {
  const auto open = [&checkpoint](uint32_t file) {
    return oracle::InputFile::Open(checkpoint.files[file].path);
  };
  return ReadStored(open, tensor, window_bytes);
}

}  // namespace shardproof::maps
