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
    .before =
        [](const FileCall& call) {
          // Whether the half is written or not makes no difference to what must happen.
          (void)call.file->WriteAt(call.offset, call.data.substr(0, call.data.size() / 2));
        },
    .call = "write to a file",
    .also = ", when its first half is done",
})};

}  // namespace
}  // namespace shardproof
