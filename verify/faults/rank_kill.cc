// A rank is killed.
#include <unistd.h>

#include <csignal>

#include "verify/faults/rank_moment.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{RankFault("rank/kill", "a rank is killed",
                                                FaultModel::kMustEndTheRun, "is killed",
                                                [](const FaultSite& site) {
                                                  if (site.die) site.die();
                                                  ::kill(::getpid(), SIGKILL);
                                                })};

}  // namespace
}  // namespace shardproof
