// NCCL's functions as the program sees them.
#include <nccl.h>

#include "verify/interpose/preload/pass.h"

namespace interpose = shardproof::interpose;
using interpose::AtRoot;
using interpose::Collective;
using interpose::OfAll;
using interpose::OfRank;
using interpose::On;
using interpose::Reporting;
using interpose::Sized;
using interpose::SizedOn;

#define CUDA_FUNCTION(...)
#define DRIVER_FUNCTION(...)
#define NCCL_FUNCTION(name, kind, parameters, arguments, facts)                    \
  extern "C" __attribute__((visibility("default"))) ncclResult_t name parameters { \
    return interpose::Pass<ncclResult_t parameters>(                               \
        interpose::Function::name, [&] { return facts; },                          \
        [&](auto* real) { return real arguments; });                               \
  }
#include "verify/interpose/functions.inc"
#include "verify/interpose/preload/since.h"

// The rule language's names are the header's numbers.
#define CUDA_ERROR(...)
#define NCCL_ERROR(name, code) static_assert(static_cast<int>(::name) == (code));
#include "verify/interpose/errors.inc"

namespace shardproof::interpose {

uint64_t ElementBytes(int type) {
  // By number: an older nccl.h lacks the newest ones.
  constexpr uint64_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < static_cast<int>(std::size(kBytes)) ? kBytes[type] : 0;
}

int RanksOf(void* comm) {
  int ranks = 1;
  auto* count = Named<decltype(ncclCommCount)>(Family::kNccl, "ncclCommCount");
  if (count == nullptr || count(static_cast<ncclComm_t>(comm), &ranks) != ncclSuccess) return 1;
  return ranks;
}

int RankIn(void* comm) {
  int rank = -1;
  auto* ask = Named<decltype(ncclCommUserRank)>(Family::kNccl, "ncclCommUserRank");
  if (ask == nullptr || ask(static_cast<ncclComm_t>(comm), &rank) != ncclSuccess) return -1;
  return rank;
}

}  // namespace shardproof::interpose
