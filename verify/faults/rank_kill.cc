// A rank is killed.
#include <unistd.h>

#include <csignal>

#include "verify/faults/rank_moment.h"

namespace shardproof::faults::rank_kill {
namespace {

const FaultRegistration kRegistration{
    RankFault({.id = "rank/kill",
               .what = "a rank is killed",
               .example = {"1@sharded", "rank 1 is killed when it has reached stage `sharded`"},
               .model = FaultModel::kMustEndTheRun,
               .becomes = "is killed",
               .act =
                   [](const FaultSite& site) {
                     if (site.die) site.die();
                     ::kill(::getpid(), SIGKILL);
                   },
               .draw = {.certain = FaultDraw::Certain::kEarlyStage,
                        .anywhere = FaultDraw::Anywhere::kCollective,
                        .place = 1}})};

}  // namespace
}  // namespace shardproof::faults::rank_kill
