// Nothing that is sent to a rank, or by it, arrives any more, and nobody is told.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <set>

#include "src/comm/tcp_table.h"
#include "src/core/check.h"
#include "verify/confine/network_namespace.h"
#include "verify/faults/rank_moment.h"

namespace shardproof::faults::net_blackhole {
namespace {

/// The ports of this process's connections: on one loopback they are what tells ranks apart.
std::string OwnPorts() {
  std::set<unsigned long> ports;
  for (const TcpEnd& end : OwnTcpEnds()) {
    ports.insert(std::strtoul(end.substr(end.rfind(':') + 1).c_str(), nullptr, 16));
  }
  return fmt::format("{}", fmt::join(ports, ", "));
}

Fault BlackHole() {
  Fault fault = RankFault(
      {.id = "net/blackhole",
       .what = "no packet of a rank's connections arrives any more, on either side",
       .example = {"0@#3",
                   "rank 0 is cut off, none of its packets arriving any more, before its fourth "
                   "collective"},
       .model = FaultModel::kMustTellAll,
       .becomes = "is cut off, none of its packets arriving any more,",
       .act =
           [](const FaultSite&) {
             const Status dropped = DropPacketsOf(OwnPorts());
             SP_CHECK(dropped.ok(), "%s", dropped.ok() ? "" : dropped.error().message.c_str());
           },
       .needs = {.process = true, .child = true, .connections = true}});
  fault.cannot = WhyNoBlackHole;
  fault.needs_own_network = true;
  return fault;
}

const FaultRegistration kRegistration{BlackHole()};

}  // namespace
}  // namespace shardproof::faults::net_blackhole
