// A sync that fails: what was written since the last one counts as lost.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/fsync",
    .what = "one fsync of a file or directory by a rank fails with an I/O error, and the "
            "data it covers is lost",
    .ops = {FileOp::kSync, FileOp::kSyncDirectory},
    .error_number = EIO,
    .call = "sync of a file or directory",
    .also = ", and what it was to make durable is lost",
})};

}  // namespace
}  // namespace shardproof
