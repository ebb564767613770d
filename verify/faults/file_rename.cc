// A rename that fails.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/rename",
    .what = "one rename by a rank fails with an I/O error; only rank 0 renames files",
    .ops = {FileOp::kRename},
    .error_number = EIO,
    .from_then_on = true,
    .call = "rename",
})};

}  // namespace
}  // namespace shardproof
