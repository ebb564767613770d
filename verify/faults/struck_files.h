// Faults of the file system: calls that fail.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "verify/fault/fault.h"

namespace shardproof {

/// A fault of which calls of some kinds fail with an errno.
struct FileFault {
  std::string id;
  std::string what;
  FaultExample example;
  std::set<FileOp> ops;
  int error_number = 0;
  bool from_then_on = false;  ///< or just the call that is hit
  FaultModel model = FaultModel::kMustAbortCleanly;
  bool half = false;      ///< a write is done by half before it fails
  std::string call;       ///< what is struck, in words: "write to a file"
  std::string also = {};  ///< what else happens, likewise: ", and what was written is lost"
  FaultDraw draw = {};
};

Fault MakeFileFault(FileFault fault);

/// In_subject of a fault of files: the same done to system calls, as `calls` has it but for its
/// trigger.
std::function<Result<SubjectFault>(const Case&, const std::string& where)> InSystemCalls(
    SubjectCalls calls);

}  // namespace shardproof
