// A write of which only a part is done before the disk is full.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/short",
    .what = "one write of a rank is cut off after its first half because the disk is full",
    .ops = {FileOp::kWrite},
    .error_number = ENOSPC,
    .half = true,
    .call = "write to a file",
    .also = ", when its first half is done",
})};

}  // namespace
}  // namespace shardproof
