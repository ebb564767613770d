// A disk that fails a read.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof::faults::file_read {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/read",
    .what = "one read of a small file by a rank fails with an I/O error; only rank 0 reads "
            "small files",
    .example = {"1:0",
                "on rank 0, the second read of a small file fails with EIO: Input/output error"},
    .ops = {FileOp::kRead},
    .error_number = EIO,
    .call = "read of a small file",
    .draw = {.anywhere = FaultDraw::Anywhere::kCall, .place = 4},
})};

}  // namespace
}  // namespace shardproof::faults::file_read
