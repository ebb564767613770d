// A checkpoint's tensors by name, and readers of them.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/formats/stored.h"
#include "verify/maps/view.h"

namespace shardproof::compare {

using maps::Reader;
using maps::TensorReader;

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
  /// Whether it is one of tensors().
  bool Owns(const formats::StoredTensor& tensor) const;

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

/// What is compared: views of A's tensors, and of an adapter's merged into them, with views of B's.
struct Inputs {
  Checkpoint a;
  Checkpoint b;
  std::optional<Checkpoint> adapter;

  /// \param unit  as maps::Open.
  Reader Open(const maps::View& view, double unit = 0) const;
};

}  // namespace shardproof::compare
