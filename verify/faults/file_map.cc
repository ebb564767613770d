// A file that cannot be mapped.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof::faults::file_map {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/map",
    .what = "one mmap of a file by a rank fails with out of memory; ranks other than 0 map "
            "files only with the strategy each-reads-own",
    .example = {"0:0",
                "on rank 0, the first mapping of a file fails with ENOMEM: Cannot allocate "
                "memory"},
    .ops = {FileOp::kMap},
    .error_number = ENOMEM,
    .call = "mapping of a file",
    .draw = {.certain = FaultDraw::Certain::kFirstCall,
             .anywhere = FaultDraw::Anywhere::kCall,
             .place = 3},
})};

}  // namespace
}  // namespace shardproof::faults::file_map
