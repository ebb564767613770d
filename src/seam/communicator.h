// The seam to the other ranks: the few collectives that the pipeline needs, each with the logical
// identity of what travels in it, which no transport carries.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/core/result.h"

namespace shardproof {

/// A stretch of one tensor's global byte image inside a payload. Bytes.
struct Piece {
  std::string tensor;         ///< canonical FQN, or a label for what is no tensor
  uint64_t global_start = 0;  ///< within the tensor's global byte image
  uint64_t length = 0;
  uint64_t offset = 0;  ///< within the payload
};

/// A collective under way. The payload must not be touched before Wait returns.
class Pending {
 public:
  virtual ~Pending() = default;
  /// \returns the payload as it arrived here; on root, what it sent.
  /// \error kPeer naming the operation and what travelled in it.
  virtual Result<at::Tensor> Wait() = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t world_size() const = 0;
  /// Starts sending root's payload [bytes] (U8, contiguous, same size on all ranks) to all. Root's
  /// is only read, so it may be a mapped file.
  virtual Result<std::unique_ptr<Pending>> Broadcast(at::Tensor payload, int64_t root,
                                                     std::vector<Piece> pieces) = 0;
  /// Starts sending every rank its own of root's payloads [bytes] (U8, contiguous, all of one
  /// size). Root's are only read. \param payload   where this rank's own arrives; of that size.
  /// \param payloads  root: one a rank; elsewhere empty.
  /// \param tensors   canonical FQNs of what travels, alike on all ranks.
  virtual Result<std::unique_ptr<Pending>> Scatter(at::Tensor payload,
                                                   std::vector<at::Tensor> payloads, int64_t root,
                                                   std::vector<std::string> tensors) = 0;
  /// The largest of the ranks' values. \param what the label it goes by in errors and evidence.
  virtual Result<int64_t> Max(int64_t value, const std::string& what) = 0;
  /// Number by number the sum of the ranks' values, as many on every rank; modulo 2^64.
  virtual Result<std::vector<int64_t>> Sum(std::vector<int64_t> values,
                                           const std::string& what) = 0;
};

/// Waits until every rank has come here with its own outcome of `what`, and gives all ranks the
/// same answer: Ok if all succeeded; this rank's own error if it failed; else the error of the
/// lowest failed rank, which it names, as kPeer (kBadInput stays kBadInput, which kUnsupported
/// becomes: what a file holds is as wrong for every rank).
Status Agree(Communicator& communicator, const Status& own, const std::string& what);

/// Gives every rank root's text. Collective.
Result<std::string> ShareText(Communicator& communicator, const std::string& text, int64_t root,
                              const std::string& what);

}  // namespace shardproof
