// A disk that fails a write.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/eio",
    .what = "one write of a rank fails with an I/O error",
    .ops = {FileOp::kWrite},
    .error_number = EIO,
    .call = "write to a file",
})};

}  // namespace
}  // namespace shardproof
