// Tensors as streams of elements in row-major order, whether they lie in one file as they are or
// are put together from several by a map.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/formats/stored.h"
#include "verify/oracle/dtype.h"
#include "verify/oracle/input_file.h"

namespace shardproof::maps {

/// What is read ahead of one part of a tensor, and of all of its parts together, so that a fuse of
/// a thousand stays small.
inline constexpr uint64_t kWindowBytesMax = 256u << 10;
inline constexpr uint64_t kWindowsBytesMax = 4u << 20;

/// A readable tensor. Reading forwards is fast; any order is right.
class TensorReader {
 public:
  TensorReader(const oracle::DtypeInfo& dtype, std::vector<int64_t> shape);
  virtual ~TensorReader() = default;

  /// Puts elements [start, start + count) at `out`. \pre they are within the tensor.
  virtual Status Read(uint64_t start, uint64_t count, char* out) = 0;

  const oracle::DtypeInfo& dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  uint64_t elements() const { return elements_; }
  uint64_t width() const { return static_cast<uint64_t>(dtype_.bytes); }

 private:
  const oracle::DtypeInfo& dtype_;
  std::vector<int64_t> shape_;
  uint64_t elements_;
};

using Reader = std::unique_ptr<TensorReader>;

/// A checkpoint's file by its index, opened. \error kBadInput if it cannot be any more.
using FileOpener = std::function<Result<std::shared_ptr<const oracle::InputFile>>(uint32_t)>;

/// A tensor as it lies in its checkpoint's files. `window_bytes` > 0 reads ahead so far, for
/// callers that ask for small pieces one after the other. Holds at most 4 MiB and 64 open files
/// besides. \pre `tensor` outlives the reader.
Reader ReadStored(FileOpener open, const formats::StoredTensor& tensor, uint64_t window_bytes);

/// The same, whose files are opened by their paths. \pre `checkpoint` outlives the reader, too.
Reader ReadStored(const formats::StoredCheckpoint& checkpoint, const formats::StoredTensor& tensor,
                  uint64_t window_bytes);

/// The parts joined along `dim`. \pre at least one, of equal dtype and, but for `dim`, shape.
Reader Concatenate(std::vector<Reader> parts, size_t dim);

/// Rows [start, start + length) of `dim`. \pre they are within the tensor.
Reader Narrow(Reader base, size_t dim, int64_t start, int64_t length);

/// Two dims swapped. Holds at most 16 MiB, and once it is read to its end, leaves them to the
/// thread's next one.
Reader Transpose(Reader base, size_t dim_a, size_t dim_b);

/// Every element rounded to another float dtype. \pre both are float dtypes.
Reader Cast(Reader base, const oracle::DtypeInfo& target);

}  // namespace shardproof::maps
