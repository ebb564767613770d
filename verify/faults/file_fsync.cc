// A sync that fails: what was written since the last one counts as lost.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof::faults::file_fsync {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/fsync",
    .what = "one fsync of a file or directory by a rank fails with an I/O error, and the "
            "data it covers is lost",
    .example = {"11:0",
                "on rank 0, the 12th sync of a file or directory fails with EIO: Input/output "
                "error, and what it was to make durable is lost"},
    .ops = {FileOp::kSync, FileOp::kSyncDirectory},
    .error_number = EIO,
    .call = "sync of a file or directory",
    .also = ", and what it was to make durable is lost",
    .draw = {.certain = FaultDraw::Certain::kFirstCall,
             .anywhere = FaultDraw::Anywhere::kCall,
             .place = 9},
})};

}  // namespace
}  // namespace shardproof::faults::file_fsync
