// A file that cannot be mapped.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/map",
    .what = "one mapping of a file by a rank fails for want of memory; ranks other than 0 map "
            "files only "
            "where each reads its own",
    .ops = {FileOp::kMap},
    .error_number = ENOMEM,
    .call = "mapping of a file",
})};

}  // namespace
}  // namespace shardproof
