// The store that ranks met by is gone: whoever needs it no more does not notice.
#include <sys/stat.h>

#include <filesystem>

#include "verify/faults/rank_moment.h"

namespace shardproof::faults::store_gone {
namespace {

/// In place of the file a directory, which nobody opens as a file, nor makes anew.
void Remove(const FaultSite& site) {
  std::error_code error;
  if (site.store.empty()) return;
  std::filesystem::remove(site.store, error);
  ::mkdir(site.store.c_str(), 0777);
}

const FaultRegistration kRegistration{RankFault(
    {.id = "store/gone",
     .what = "the rendezvous store is removed once a rank reaches STAGE",
     .example = {"0@sharded",
                 "rank 0 loses the store that all ranks met by, when it has reached stage "
                 "`sharded`"},
     .model = FaultModel::kMustGoOn,
     .becomes = "loses the store that all ranks met by,",
     .act = Remove,
     .needs = {.process = true, .child = true}})};

}  // namespace
}  // namespace shardproof::faults::store_gone
