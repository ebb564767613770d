// A rank ends early, and says that all is well.
#include <unistd.h>

#include "verify/faults/rank_moment.h"

namespace shardproof::faults::rank_leave {
namespace {

const FaultRegistration kRegistration{RankFault(
    {.id = "rank/leave",
     .what = "a rank exits early, as if it had finished",
     .example = {"0@#12", "rank 0 ends early, as if all were well, before its 13th collective"},
     .model = FaultModel::kMustEndTheRun,
     .becomes = "ends early, as if all were well,",
     .act =
         [](const FaultSite& site) {
           if (site.die) site.die();
           ::_exit(0);
         },
     .draw = {.certain = FaultDraw::Certain::kEarlyStage,
              .anywhere = FaultDraw::Anywhere::kCollective,
              .place = 2}})};

}  // namespace
}  // namespace shardproof::faults::rank_leave
