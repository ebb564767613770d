// A file system that has become read-only, as the kernel makes one after an error.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof::faults::file_read_only {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/read-only",
    .what = "one rank can neither create nor change files from its n-th attempt on",
    .example = {"0:0",
                "on rank 0, the first attempt to make or change a file and all after it fail "
                "with EROFS: Read-only file system"},
    .ops = {FileOp::kCreate, FileOp::kOpen, FileOp::kWrite, FileOp::kMakeDirectory,
            FileOp::kRename},
    .error_number = EROFS,
    .from_then_on = true,
    .call = "attempt to make or change a file",
    .draw = {.certain = FaultDraw::Certain::kFirstCall,
             .anywhere = FaultDraw::Anywhere::kCall,
             .place = 11},
})};

}  // namespace
}  // namespace shardproof::faults::file_read_only
