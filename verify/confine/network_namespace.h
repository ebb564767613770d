// A network of one launch's own: what is done to it reaches nothing else, and it goes with its
// processes.
#pragma once

#include <string>

#include "src/core/result.h"

namespace shardproof {

/// A network namespace with loopback in it and nothing else, for as long as this object or a
/// process that joined it is there.
class NetworkNamespace {
 public:
  /// Changes nothing of this process, which must have no threads. \error kFailed where this is not
  /// permitted.
  static Result<NetworkNamespace> Make();
  NetworkNamespace(NetworkNamespace&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  NetworkNamespace& operator=(NetworkNamespace&&) = delete;
  ~NetworkNamespace();

  /// Moves the calling thread there, for good; to be called before it has started any other.
  Status Join() const;

 private:
  explicit NetworkNamespace(int fd) : fd_(fd) {}
  int fd_;
};

/// Why packets cannot be dropped in a network namespace here, in a line, or empty. Tries it, once.
std::string WhyNoBlackHole();

/// Drops from now on, in the network namespace of this process, every TCP packet from or to
/// `ports`. \error kFailed with what nft says.
Status DropPacketsOf(const std::string& ports);

}  // namespace shardproof
