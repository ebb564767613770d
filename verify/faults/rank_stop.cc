// A rank stops answering.
#include <unistd.h>

#include <csignal>

#include "verify/faults/rank_moment.h"

namespace shardproof::faults::rank_stop {
namespace {

const FaultRegistration kRegistration{RankFault(
    {.id = "rank/stop",
     .what = "a rank stops and never responds again",
     .example = {"1@stepped@2",
                 "rank 1 stops and never answers again, when it has reached stage `stepped` of "
                 "step 2"},
     .model = FaultModel::kMustEndTheRun,
     .becomes = "stops and never answers again,",
     .act = [](const FaultSite&) { ::kill(::getpid(), SIGSTOP); },
     .needs = {.process = true},
     .draw = {.certain = FaultDraw::Certain::kEarlyStage, .needs_processes = true, .place = 16}})};

}  // namespace
}  // namespace shardproof::faults::rank_stop
