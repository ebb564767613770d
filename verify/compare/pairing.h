// Which tensor of A is held against which of B, and how A's is put together.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/compare/name_map.h"
#include "verify/compare/tensor_reader.h"

namespace shardproof::compare {

/// A checkpoint's tensors by name, with its files opened when first needed. Read by any thread.
class Checkpoint {
 public:
  /// \param below  only what has names that begin so is taken, without that beginning.
  /// \error kBadInput as OpenStored; if no name begins so.
  static Result<Checkpoint> Open(const std::string& path, const std::string& below = "");

  const std::vector<formats::StoredTensor>& tensors() const { return stored_.tensors; }
  const std::vector<formats::StoredValue>& values() const { return stored_.values; }
  /// Whether it can hold values that are no tensors: safetensors does only beside a model.
  bool HoldsValues() const { return stored_.format != "safetensors" || !values().empty(); }
  const formats::StoredTensor* Find(const std::string& name) const;

  /// \pre `tensor` is of this checkpoint, which outlives the reader. An error of a file that cannot
  /// be opened any more comes with the first read.
  Reader Read(const formats::StoredTensor& tensor, uint64_t window_bytes = 0) const;

 private:
  /// Files in use; a file nobody reads from is closed. Any thread.
  struct OpenFiles {
    std::mutex mutex;
    std::vector<std::weak_ptr<const oracle::InputFile>> files;
  };

  formats::StoredCheckpoint stored_;
  std::shared_ptr<OpenFiles> open_ = std::make_shared<OpenFiles>();
};

/// One tensor of B and what becomes it: parts of A, joined, cut or swapped in that order.
struct TensorPair {
  std::string b_name;
  std::vector<std::string> parts;  ///< A's names; one unless fused
  size_t fuse_dim = 0;
  bool is_split = false;
  size_t split_dim = 0;
  int64_t split_start = 0;
  int64_t split_length = 0;
  bool is_transposed = false;
  size_t dim_a = 0;
  size_t dim_b = 0;
  std::string map_file;  ///< NameMap::where of the map that says so; empty: none does

  /// "fuse of q, k, v": what of A it is, or empty if it is the tensor of the same name.
  std::string Source() const;
};

struct Pairing {
  std::vector<TensorPair> pairs;  ///< in the order of A's files
  std::vector<std::string> only_in_a;
  std::vector<std::string> only_in_b;
};

/// \param map  null: names must agree.
/// \error kBadInput: the map names a tensor that is not there, uses one twice, has a rule that does
///   not apply or does not fit the shapes.
Result<Pairing> Pair(const Checkpoint& a, const Checkpoint& b, const NameMap* map);

/// A's side of a pair. \error kBadInput, with the map's file, if the parts cannot be joined, or the
/// dims that are to be swapped are not there.
Result<Reader> ReadSource(const Checkpoint& a, const TensorPair& pair);

}  // namespace shardproof::compare
