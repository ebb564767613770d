// A disk that fails a read.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/read",
    .what =
        "one read of a small file by a rank fails with an I/O error; ranks other than 0 read none",
    .example = {"1:0",
                "on rank 0, the second read of a small file fails with EIO: Input/output error"},
    .ops = {FileOp::kRead},
    .error_number = EIO,
    .call = "read of a small file",
    .draw = {.anywhere = FaultDraw::Anywhere::kCall, .place = 4},
})};

}  // namespace
}  // namespace shardproof
