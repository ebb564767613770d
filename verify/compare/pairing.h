// Which tensor of A is held against which of B, and how A's is put together.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/compare/name_map.h"
#include "verify/compare/tensor_reader.h"

namespace shardproof::compare {

/// A checkpoint's tensors by name, with its files opened when first needed.
class Checkpoint {
 public:
  /// \error kBadInput as Locate.
  static Result<Checkpoint> Open(const std::string& path);

  const std::map<std::string, oracle::TensorLocation>& tensors() const { return tensors_; }
  const oracle::TensorLocation* Find(const std::string& name) const;

  /// \error kBadInput if its file cannot be opened any more.
  Result<Reader> Read(const oracle::TensorLocation& where, uint64_t window_bytes = 0) const;

 private:
  std::string path_;
  std::map<std::string, oracle::TensorLocation> tensors_;
  /// Files in use; a file nobody reads from is closed.
  mutable std::map<std::string, std::weak_ptr<const oracle::InputFile>> files_;
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

  bool IsPlain() const { return parts.size() == 1 && !is_split && !is_transposed; }
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

/// A's side of a pair. \error kBadInput if the parts cannot be joined.
Result<Reader> ReadSource(const Checkpoint& a, const TensorPair& pair);

}  // namespace shardproof::compare
