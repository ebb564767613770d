#include "src/contract/job.h"

namespace shardproof {

std::optional<Strategy> StrategyFromName(std::string_view name) {
  if (name == "rank0-broadcast") return Strategy::kRank0Broadcast;
  if (name == "rank0-scatter") return Strategy::kRank0Scatter;
  if (name == "each-reads-own") return Strategy::kEachReadsOwn;
  if (name == "plain") return Strategy::kPlain;
  return std::nullopt;
}

}  // namespace shardproof
