// All connections of a rank are reset, as by a middlebox that has forgotten them.
#include <dirent.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "verify/faults/rank_moment.h"

namespace shardproof::faults::net_reset {
namespace {

/// Has the kernel send a reset to the other end of a TCP connection; it is none of this end any
/// more. \source connect(2): AF_UNSPEC dissolves an association; RFC 9293 3.10.5, ABORT
void Reset(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return;
  if (peer.ss_family != AF_INET && peer.ss_family != AF_INET6) return;
  sockaddr nobody{};
  nobody.sa_family = AF_UNSPEC;
  ::connect(fd, &nobody, sizeof nobody);
}

void ResetAll(const FaultSite&) {
  DIR* descriptors = ::opendir("/proc/self/fd");
  if (descriptors == nullptr) return;
  while (const dirent* entry = ::readdir(descriptors)) Reset(std::atoi(entry->d_name));
  ::closedir(descriptors);
}

const FaultRegistration kRegistration{RankFault(
    {.id = "net/reset",
     .what = "all connections of a rank are reset",
     .example = {"1@ready",
                 "rank 1 has all of its connections reset when it has reached stage `ready`"},
     .model = FaultModel::kMustTellAll,
     .becomes = "has all of its connections reset",
     .act = ResetAll,
     .needs = {.process = true, .connections = true},
     .draw = {.certain = FaultDraw::Certain::kEarlyStage,
              .needs_processes = true,
              .needs_others = true,
              .place = 18}})};

}  // namespace
}  // namespace shardproof::faults::net_reset
