// The memory of a job's ranks and nodes in the JSON document.
#include <nlohmann/json.hpp>

#include "verify/report/memory_text.h"

namespace shardproof {
namespace {

using nlohmann::json;

json HostToJson(const HostBytes& host) {
  return {{"anonymous_bytes", host.anonymous},
          {"shared_bytes", host.shared},
          {"file_bytes", host.file}};
}

json PeakToJson(const HeldPeak& peak) {
  return {{"anonymous_bytes", peak.anonymous}, {"shared_bytes", peak.shared},
          {"time_ms", peak.time_ms},           {"interval_ms", peak.interval_ms},
          {"stacks_bytes", peak.stacks_bytes}, {"stacks", peak.stacks}};
}

json RankToJson(const RankMemory& rank) {
  const HeldRecord& held = rank.held;
  json out = HostToJson(held.host);
  out["rank"] = rank.rank;
  out["host"] = rank.host;
  out["time_ms"] = held.time_ms;
  out["locked_bytes"] = held.locked;
  if (held.pinned) out["pinned_bytes"] = *held.pinned;
  if (held.proportional) out["proportional"] = HostToJson(*held.proportional);
  if (held.peak) out["peak"] = PeakToJson(*held.peak);
  json& tensors = out["tensors"] = json::array();
  for (const HeldTensors& one : held.tensors) {
    tensors.push_back({{"of", one.of},
                       {"device", one.device},
                       {"bytes", one.bytes},
                       {"anonymous_bytes", one.anonymous}});
  }
  json& devices = out["devices"] = json::array();
  for (const HeldDevice& one : held.devices) {
    devices.push_back({{"device", one.device},
                       {"allocated_bytes", one.allocated},
                       {"reserved_bytes", one.reserved},
                       {"peak_allocated_bytes", one.peak_allocated},
                       {"peak_reserved_bytes", one.peak_reserved}});
  }
  json& who = out["who"] = json::array();
  for (const HeldBy& one : held.who) {
    who.push_back({{"by", one.by},
                   {"what", one.what},
                   {"bytes", one.bytes},
                   {"count", one.count},
                   {"stack", one.stack}});
  }
  return out;
}

json NodeToJson(const NodeMemory& node) {
  json out = {{"host", node.host},
              {"ranks", node.ranks},
              {"anonymous_bytes", node.anonymous},
              {"peak_at_most_bytes", node.peak},
              {"pinned_bytes", node.pinned},
              {"allocated_bytes", node.allocated},
              {"peak_allocated_bytes", node.peak_allocated}};
  if (node.shared) out["shared_bytes"] = *node.shared;
  if (node.file) out["file_bytes"] = *node.file;
  return out;
}

}  // namespace

json LoadingToJson(const std::vector<LoadingMemory>& ranks) {
  json out = json::array();
  for (const LoadingMemory& rank : ranks) {
    json& one = out.emplace_back(json{{"rank", rank.rank}, {"peak_bytes", rank.peak}});
    if (rank.plain_peak) one["plain_peak_bytes"] = *rank.plain_peak;
  }
  return out;
}

json MemoryToJson(const std::vector<StageMemory>& stages) {
  json out = json::array();
  for (const StageMemory& stage : stages) {
    json ranks = json::array(), nodes = json::array();
    for (const RankMemory& rank : stage.ranks) ranks.push_back(RankToJson(rank));
    for (const NodeMemory& node : stage.nodes) nodes.push_back(NodeToJson(node));
    out.push_back(
        {{"stage", stage.stage}, {"ranks", std::move(ranks)}, {"nodes", std::move(nodes)}});
  }
  return out;
}

}  // namespace shardproof
