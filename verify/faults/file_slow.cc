// A disk that is slow.
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "verify/decorators/asked_files.h"
#include "verify/fault/fault_descriptions.h"
#include "verify/faults/struck_files.h"

namespace shardproof::faults::file_slow {
namespace {

constexpr auto kDelay = std::chrono::milliseconds(20);

const FaultRegistration kRegistration{{
    .id = "file/slow",
    .what = "every write and fsync of one rank takes 20 ms longer, from the n-th on",
    .where = kTriggerHelp,
    .example = {"0:0",
                "on rank 0, the first write to or sync of a file and all after it take 20 ms "
                "longer"},
    .model = FaultModel::kMustGoOn,
    .check = CheckTrigger,
    .arm =
        [](FaultSite site, const std::string& where) {
          const auto point = site.Point("file/slow", where, true);
          site.world.files = AskBefore(site.world.files, [point](const FileCall& call) -> Status {
            if (call.op != FileOp::kWrite && call.op != FileOp::kSync) return Ok();
            if (point->Strikes({call.path, call.bytes},
                               {.detail = call.action + ": late", .call = call.action})) {
              std::this_thread::sleep_for(kDelay);
            }
            return Ok();
          });
        },
    .in_subject = InSystemCalls(
        {.ops = {FileOp::kWrite, FileOp::kSync}, .from_then_on = true, .delay = kDelay}),
    .in_words = CallInWords("write to or sync of a file", "take 20 ms longer", true),
}};

}  // namespace
}  // namespace shardproof::faults::file_slow
