// Reading a directory of torch.distributed.checkpoint (DCP): .metadata says which box of which
// tensor, and which value, lies where in the files; each lies there as an archive of torch.save.
// Everything in it is hostile until it has been checked; no pickle is ever executed.
#pragma once

#include "src/format/safetensors.h"

namespace shardproof {

/// Whether `directory` is one.
bool HoldsDcp(FileSystem& files, const std::string& directory);

/// Opens it: what is below "model." are the model's tensors, under their names in it; if nothing
/// is, all but "rng_<n>" and what is below a ".state.". The rest is a training job's. Maps the
/// files; reads no tensor data. \error kBadInput naming file, tensor, what was expected and what
/// was found: a piece that is missing,
///   outside of its file, of another dtype or shape than .metadata says; boxes that overlap or
///   leave a gap; a pickle that is refused. kUnsupported: what DCP can write and this does not
///   read.
/// \source torch.distributed.checkpoint: metadata.py, filesystem.py
Result<Source> OpenDcpSource(FileSystem& files, const std::string& directory);

}  // namespace shardproof
