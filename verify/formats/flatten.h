// The tensors and values of one torch.save archive, by name.
#pragma once

#include <string>

#include "verify/formats/stored.h"
#include "verify/formats/torch_archive.h"

namespace shardproof::formats {

/// Adds what `archive`, which is in checkpoint.files[file], holds. Dicts are taken apart, and lists
/// and tuples with a dict or a tensor in them, as DCP does, so that both give the same names: keys
/// and indices joined by dots, after `name`. A dict without entries has no name and is passed over,
/// as DCP does too. Names that two have in one archive are spelled as Python does: ['a']['b'].
/// A tensor that torch conjugates or negates when it loads it is `w.conj` or `w.neg`.
/// \error kBadInput naming `where`: a tensor that cannot be read, a checkpoint of more than four
/// million
///   parts or 256 MiB of names and texts, nesting deeper than 100.
Status Flatten(const TorchArchive& archive, const std::string& name, uint32_t file,
               const std::string& where, StoredCheckpoint& checkpoint);

/// The one chunk that a tensor of an archive is.
Chunk WholeChunk(const TorchTensor& tensor, uint32_t file);

}  // namespace shardproof::formats
