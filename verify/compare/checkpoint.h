// A checkpoint's tensors by name, and readers of them.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/formats/stored.h"
#include "verify/maps/view.h"
#include "verify/quantised/dequantise.h"

namespace shardproof::compare {

using maps::Reader;
using maps::TensorReader;

/// A checkpoint's tensors by name, with its files opened when first needed. Read by any thread.
class Checkpoint {
 public:
  /// \param below  only what has names that begin so is taken, without that beginning.
  /// \error kBadInput as OpenStored; if no name begins so.
  static Result<Checkpoint> Open(const std::string& path, const std::string& below = "");

  /// The same, with a tensor of computed numbers for each quantised weight in place of its codes,
  /// scales and other parts.
  static Result<Checkpoint> OpenDequantised(const std::string& path, const std::string& below);

  const std::vector<formats::StoredTensor>& tensors() const { return stored_.tensors; }
  const std::vector<formats::StoredValue>& values() const { return stored_.values; }
  const std::vector<formats::StoredFile>& files() const { return stored_.files; }
  /// Whether it can hold values that are no tensors: safetensors does only beside a model.
  bool HoldsValues() const { return stored_.format != "safetensors" || !values().empty(); }
  const formats::StoredTensor* Find(const std::string& name) const;
  /// Whether it is one of tensors().
  bool Owns(const formats::StoredTensor& tensor) const;

  /// \pre `tensor` is of this checkpoint, which outlives the reader. An error of a file that cannot
  /// be opened any more comes with the first read.
  Reader Read(const formats::StoredTensor& tensor, uint64_t window_bytes = 0) const;

  /// What stands behind a tensor; null of one that is stored as it is.
  const quantised::Unit* UnitOf(const formats::StoredTensor& tensor) const;
  const std::map<std::string, quantised::Unit>& units() const { return units_; }
  /// \pre the unit's parts are of this checkpoint. \returns null as quantised::Dequantise.
  Reader ReadUnit(const quantised::Unit& unit, quantised::Misreading misreading) const;
  /// The same of one whose part lies otherwise.
  Reader ReadRearranged(const quantised::Unit& unit, const std::string& part,
                        const quantised::Rearrangement& rearrangement) const;
  /// The method by which it is quantised, if that is not known: "hqq by config.json"; else empty.
  const std::string& unknown_method() const { return unknown_method_; }
  /// Tensors beside quantised weights that are about activations; they were left out.
  uint64_t beside() const { return beside_; }

 private:
  Reader ReadStored(const formats::StoredTensor& tensor, uint64_t window_bytes) const;
  Status Take(const std::string& path, const std::string& below);
  Status MakeUnits(const std::string& path);

  /// Files in use; a file nobody reads from is closed. Any thread.
  struct OpenFiles {
    std::mutex mutex;
    std::vector<std::weak_ptr<const oracle::InputFile>> files;
  };

  formats::StoredCheckpoint stored_;
  std::map<std::string, quantised::Unit> units_;  ///< by the weight's name
  std::string unknown_method_;
  uint64_t beside_ = 0;
  std::shared_ptr<OpenFiles> open_ = std::make_shared<OpenFiles>();
};

/// How a checkpoint is quantised, by the files beside it: "fp8 by config.json"; empty: not, as far
/// as they say. Whether a GGUF file is, its types say, which are not looked at here.
std::string MethodOf(const std::string& path);

/// What is compared: views of A's tensors, and of an adapter's merged into them, with views of B's.
struct Inputs {
  Checkpoint a;
  Checkpoint b;
  std::optional<Checkpoint> adapter;

  /// \param unit  as maps::Open.
  Reader Open(const maps::View& view, double unit = 0) const;
};

}  // namespace shardproof::compare
