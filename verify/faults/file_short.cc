// A write of which only a part is done before the disk is full.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof::faults::file_short {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/short",
    .what = "one write of a rank is cut off after its first half because the disk is full",
    .example = {"0:0",
                "on rank 0, the first write to a file fails with ENOSPC: No space left on "
                "device, when its first half is done"},
    .ops = {FileOp::kWrite},
    .error_number = ENOSPC,
    .half = true,
    .call = "write to a file",
    .also = ", when its first half is done",
    .draw = {.certain = FaultDraw::Certain::kFirstCall,
             .anywhere = FaultDraw::Anywhere::kCall,
             .place = 8},
})};

}  // namespace
}  // namespace shardproof::faults::file_short
