// A rank ends early, and says that all is well.
#include <unistd.h>

#include "verify/faults/rank_moment.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{
    RankFault("rank/leave", "a rank exits early, as if it had finished", FaultModel::kMustEndTheRun,
              "ends early, as if all were well,", [](const FaultSite& site) {
                if (site.die) site.die();
                ::_exit(0);
              })};

}  // namespace
}  // namespace shardproof
