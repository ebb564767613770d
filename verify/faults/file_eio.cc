// A disk that fails a write.
#include <cerrno>

#include "verify/faults/struck_files.h"

namespace shardproof::faults::file_eio {
namespace {

const FaultRegistration kRegistration{MakeFileFault({
    .id = "file/eio",
    .what = "one write of a rank fails with an I/O error",
    .example = {"what=norm.weight,rank=all,bytes=64,stage=saved",
                "on every rank, the first write to a file, of those of at least 64 bytes, of "
                "those with 'norm.weight' in their name, of those on the way to `saved`, fails "
                "with EIO: Input/output error"},
    .ops = {FileOp::kWrite},
    .error_number = EIO,
    .call = "write to a file",
    .draw = {.certain = FaultDraw::Certain::kFirstCall,
             .anywhere = FaultDraw::Anywhere::kCall,
             .place = 7},
})};

}  // namespace
}  // namespace shardproof::faults::file_eio
