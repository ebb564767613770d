// A quota is used up while a checkpoint is being saved.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof::faults::file_edquot {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/edquot",
    .what = "the disk quota of one rank is exhausted from its n-th write on",
    .example = {"0",
                "on rank 1, the first write to a file and all after it fail with EDQUOT: Disk "
                "quota exceeded"},
    .ops = {FileOp::kWrite},
    .error_number = EDQUOT,
    .from_then_on = true,
    .call = "write to a file",
    .draw = {.certain = FaultDraw::Certain::kFirstCall,
             .anywhere = FaultDraw::Anywhere::kCall,
             .place = 6},
})};

}  // namespace
}  // namespace shardproof::faults::file_edquot
