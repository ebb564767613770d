// Collectives built from the two of the seam.
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <cstring>

#include "src/seam/communicator.h"

namespace shardproof {

Result<std::string> ShareText(Communicator& communicator, const std::string& text, int64_t root,
                              const std::string& what) {
  const bool is_root = communicator.rank() == root;
  SP_ASSIGN(const int64_t size,
            communicator.Max(is_root ? static_cast<int64_t>(text.size()) : 0, what + " size"));
  if (size == 0) return std::string();
  at::Tensor payload = at::empty({size}, at::kByte);
  if (is_root) std::memcpy(payload.mutable_data_ptr(), text.data(), text.size());
  SP_ASSIGN(const auto pending,
            communicator.Broadcast(payload, root, {{what, 0, static_cast<uint64_t>(size), 0}}));
  SP_TRY(pending->Wait());
  return std::string(static_cast<const char*>(payload.const_data_ptr()), size);
}

Status Agree(Communicator& communicator, const Status& own, const std::string& what) {
  // The lowest failed rank wins: the maximum of (world - rank) over failed ranks, 0 if none failed.
  const int64_t world = communicator.world_size();
  const int64_t vote = own.ok() ? 0 : world - communicator.rank();
  SP_ASSIGN(const int64_t worst, communicator.Max(vote, what));
  if (worst == 0) return Ok();
  const int64_t failed_rank = world - worst;
  const bool bad_input = !own.ok() && (own.error().code == ErrorCode::kBadInput ||
                                       own.error().code == ErrorCode::kUnsupported);
  SP_ASSIGN(const std::string text,
            ShareText(communicator, own.ok() ? "" : (bad_input ? "!" : " ") + own.error().message,
                      failed_rank, what + " error"));
  if (!own.ok()) return own.error();
  // Whose: where a shared file system is late, others may find what it does not.
  if (text.starts_with('!'))
    return BadInput(fmt::format("rank {}: {}", failed_rank, text.substr(1)));
  return PeerFailed(fmt::format("{}: rank {} failed: {}", what, failed_rank, text.substr(1)));
}

}  // namespace shardproof
