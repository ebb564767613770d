// A load verifies what it reads: a checkpoint that has a manifest holds what the manifest says, all
// of it and nothing else, and what was loaded has the digests of what was saved.
#pragma once

#include "src/contract/stages.h"
#include "src/load/key_match.h"

namespace shardproof {

/// Holds what was opened of `directory`, its files from `first_file` on, against its manifest, if
/// it has one: files, tensors with dtypes and shapes, and values. What the tensors' bytes must add
/// up to goes into `source`. \error kBadInput naming file and tensor, what was expected and what
/// was found.
Status HoldAgainstManifest(FileSystem& files, const std::string& directory, size_t first_file,
                           Source& source);

/// Stages::verify_loaded: every rank digests what it holds, one sum compares all that was filled.
/// Keys that fill nothing are not read. \error kBadInput on every rank, naming files and tensors,
/// and the digests of the first.
Status VerifyLoaded(const KeyMatch& keys, const Source& source, const Stages& stages,
                    const Job& job, World& world);

}  // namespace shardproof
