// A write of which only a part is done before the disk is full.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/short",
    .what = "of one write of a rank only the first half is done, and the disk is full",
    .ops = {FileOp::kWrite},
    .error_number = ENOSPC,
    .half = true,
    .call = "write to a file",
    .also = ", when its first half is done",
})};

}  // namespace
}  // namespace shardproof
