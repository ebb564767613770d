// The disk is full while a checkpoint is being saved.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof::faults::file_enospc {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/enospc",
    .what = "one rank finds the disk full from its n-th write on",
    .example = {"2:1",
                "on rank 1, the third write to a file and all after it fail with ENOSPC: No "
                "space left on device"},
    .ops = {FileOp::kWrite},
    .error_number = ENOSPC,
    .from_then_on = true,
    .call = "write to a file",
    .draw = {.certain = FaultDraw::Certain::kFirstCall,
             .anywhere = FaultDraw::Anywhere::kCall,
             .place = 5},
})};

}  // namespace
}  // namespace shardproof::faults::file_enospc
