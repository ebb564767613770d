// A rename that fails.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/rename",
    .what = "one rename by a rank fails with an I/O error; ranks other than 0 make none",
    .ops = {FileOp::kRename},
    .error_number = EIO,
    .from_then_on = true,
    .call = "rename",
})};

}  // namespace
}  // namespace shardproof
