// A rank that others have to wait for.
#include <chrono>
#include <thread>

#include "verify/faults/rank_moment.h"

namespace shardproof::faults::rank_slow {
namespace {

constexpr auto kDelay = std::chrono::milliseconds(300);

const FaultRegistration kRegistration{RankFault(
    {.id = "rank/slow",
     .what = "a rank does nothing for 300 ms",
     .example = {"1@ready", "rank 1 does nothing for 300 ms when it has reached stage `ready`"},
     .model = FaultModel::kMustGoOn,
     .becomes = "does nothing for 300 ms",
     .act = [](const FaultSite&) { std::this_thread::sleep_for(kDelay); }})};

}  // namespace
}  // namespace shardproof::faults::rank_slow
