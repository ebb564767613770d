// A rank stops answering.
#include <unistd.h>

#include <csignal>

#include "verify/faults/rank_moment.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{
    RankFault("rank/stop", "a rank stops and never responds again", FaultModel::kMustEndTheRun,
              "stops and never answers again,",
              [](const FaultSite&) { ::kill(::getpid(), SIGSTOP); }, {.process = true})};

}  // namespace
}  // namespace shardproof
