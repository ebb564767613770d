// A file of GGUF (llama.cpp): values, then tensors.
#pragma once

#include "verify/formats/stored.h"

namespace shardproof::formats {

/// Tensors of a quantised type are read as the bytes of their blocks: U8, with the bytes of a row
/// as their last size, and the value NAME.type that says which type. Of a model that is split into
/// several files, it is one, and `unjudged` says so. \error kBadInput: not such a
/// file, or one that ends too early; kUnsupported: a version or a type of tensor that is not known.
Result<StoredCheckpoint> OpenGguf(const std::string& path, Damage* damage);

}  // namespace shardproof::formats
