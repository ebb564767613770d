// A rank that others have to wait for.
#include <chrono>
#include <thread>

#include "verify/faults/rank_moment.h"

namespace shardproof {
namespace {

constexpr auto kDelay = std::chrono::milliseconds(300);

const FaultRegistration kRegistration{RankFault(
    "rank/slow", "a rank does nothing for 300 ms", FaultModel::kMustGoOn, "does nothing for 300 ms",
    [](const FaultSite&) { std::this_thread::sleep_for(kDelay); })};

}  // namespace
}  // namespace shardproof
