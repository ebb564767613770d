// A rename that fails.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof::faults::file_rename {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/rename",
    .what = "one rename by a rank fails with an I/O error; only rank 0 renames files",
    .example = {"0:0",
                "on rank 0, the first rename and all after it fail with EIO: Input/output error"},
    .ops = {FileOp::kRename},
    .error_number = EIO,
    .from_then_on = true,
    .call = "rename",
    .draw = {.certain = FaultDraw::Certain::kFirstCall,
             .anywhere = FaultDraw::Anywhere::kCall,
             .place = 10},
})};

}  // namespace
}  // namespace shardproof::faults::file_rename
