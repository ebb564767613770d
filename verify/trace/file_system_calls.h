// What a system call does with a file, in the terms of the faults that may strike it.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "verify/trace/file_op.h"
#include "verify/trace/tracer.h"

namespace shardproof {

struct FileSystemCall {
  FileOp op = FileOp::kWrite;
  std::string path;    ///< absolute; of a rename the old name
  uint64_t bytes = 0;  ///< of a write, read or mapping: how many are asked for
  /// The argument that says how many, of a call that has one.
  std::optional<int> count_argument = {};
};

/// The calls of which one may do any of `ops`.
std::vector<long> SystemCallsOf(const std::set<FileOp>& ops);

/// What a call that is about to be done does; nothing if it is not about a file that has a name.
std::optional<FileSystemCall> Classify(const trace::Call& call);

/// "writing 96 bytes to model/__0_0.distcp", "fsync of ..."
std::string InWords(const FileSystemCall& call, const std::string& path);

}  // namespace shardproof
