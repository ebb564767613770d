// A file that cannot be mapped.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/map",
    .what = "one mmap of a file by a rank fails with out of memory; ranks other than 0 map "
            "files only with the strategy each-reads-own",
    .ops = {FileOp::kMap},
    .error_number = ENOMEM,
    .call = "mapping of a file",
})};

}  // namespace
}  // namespace shardproof
