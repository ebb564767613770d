// The header of one safetensors file, validated in full before anything in it is used.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/core/result.h"
#include "verify/oracle/input_file.h"
#include "verify/oracle/oracle.h"

namespace shardproof::oracle {

/// The largest header that the safetensors library itself accepts. Bytes.
constexpr uint64_t kHeaderBytesMax = 100'000'000;

/// The tensors of one file, in the order of their bytes. Every byte after the header belongs to
/// exactly one of them.
/// \param file_name  stored in TensorLocation::file.
/// \param parsed  set once the header could be read as one: an error is then about what it says.
/// \error kBadInput naming the file, the offset or key, what was expected and what was found.
Result<std::vector<TensorLocation>> ReadHeader(const InputFile& file, const std::string& file_name,
                                               bool* parsed = nullptr);

/// What the file says of itself, under `__metadata__`. \error kBadInput if it has no such header.
Result<std::map<std::string, std::string>> ReadMetadata(const InputFile& file);

/// Takes an error down as damage, if there is somewhere to take it down to; returns it else, and if
/// it only says that something is not known.
Status Note(Error error, Damage* damage);

/// The index of that name that says where a checkpoint's tensors are; empty if none does.
std::string IndexOf(const std::string& checkpoint, const std::string& index = kModelIndexName);

/// Key to file, as the `weight_map` of an index says; every file is inside the directory.
/// \error kBadInput naming the index, the key, what was expected and found.
Result<std::map<std::string, std::string>> ReadIndex(const std::string& path);

/// Where the file of a located tensor lies: `checkpoint` is a directory or that very file, unless
/// the location says by itself where.
std::string PathOf(const std::string& checkpoint, const TensorLocation& where);

}  // namespace shardproof::oracle
