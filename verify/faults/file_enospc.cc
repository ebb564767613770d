// The disk is full while a checkpoint is being saved.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/enospc",
    .what = "one rank finds the disk full from its n-th write on",
    .ops = {FileOp::kWrite},
    .error_number = ENOSPC,
    .from_then_on = true,
    .call = "write to a file",
})};

}  // namespace
}  // namespace shardproof
